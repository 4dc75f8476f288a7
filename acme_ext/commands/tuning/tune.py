"""The implementation of `acme-ext tune`."""

import contextlib
import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

from acme_ext.commands.tuning import results, spaces
from acme_ext.commands.tuning.study import Study, Tuned
from acme_ext.config.assignments import configure_builder, parse_amounts, split_assignments
from acme_ext.errors import UsageError
from acme_ext.launch.hosts import interrupt
from acme_ext.launch.hosts.ray import commands
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.recorded_data import check_recorded_data
from acme_ext.launch.runs.validation import check_agent


def tuned_by(options: Any, experiment: Experiment) -> Tuned:
    """Returns the study's settings from the options of `tune`; `experiment` is a run with the fixed settings.

    Raises:
        UsageError: the space is invalid, or a run with the middle of the space would be refused.
    """
    fixed = split_assignments(options.set)
    space = spaces.of_agent(experiment.builder, options.space, fixed)
    if options.seed < options.seeds:
        raise UsageError(
            f"--seed is {options.seed}: trials must not have the seeds 0 to {options.seeds - 1} of --seeds."
        )
    every = max(1, options.steps // 10) if options.eval_every is None else options.eval_every
    if every < 0:
        raise UsageError(f"--eval-every is {every}: it must be at least 0.")
    builder = configure_builder(experiment.builder, spaces.middle(space))
    tried = dataclasses.replace(experiment, builder=builder)
    spec = tried.make_spec()
    check_recorded_data(tried, check_agent(tried, spec), spec)
    return Tuned(
        agent=options.agent,
        environment=options.environment,
        steps=options.steps,
        every=every,
        num_envs=options.num_envs,
        eval_episodes=options.eval_episodes,
        settings=fixed,
        environment_options=split_assignments(options.env_set),
        space=space,
        seed=options.seed,
    )


def _amounts(text: str) -> dict[str, float]:
    """Returns the resources that each run asks Ray for."""
    with contextlib.suppress(UsageError):
        asked = parse_amounts([f"run={text}"])["run"]
        if all(name and amount > 0 and (amount <= 1 or amount == int(amount)) for name, amount in asked.items()):
            return asked
    raise UsageError(f"--resources is {text!r}: write CPU:1 or GPU:1,CPU:4, with numbers above 0, whole if above 1.")


def tune(tuned: Tuned, options: Any) -> int:
    """Searches, retrains the best settings and reports the results; returns the command's exit code."""

    def report(text: str) -> None:
        if not options.quiet:
            print(text, file=sys.stderr, flush=True)

    usual = Path("runs") / re.sub(r"[^\w.=+-]+", "-", f"tune-{tuned.agent}-{tuned.environment}")
    path = Path(options.study) if options.study else usual
    with contextlib.ExitStack() as stack:
        cluster = None
        if options.on == "ray":  # before the signal handlers are set, because Ray sets its own
            cluster = stack.enter_context(commands.joined(options.ray_address, path, _amounts(options.resources)))
        study = Study(path, tuned, report, cluster)
        report("\n".join([f"the study is {path}; it searches", *spaces.table(tuned.space)]))
        stop = stack.enter_context(interrupt.graceful(report))
        study.search(options.trials, options.jobs, stop)
        retrained = study.retrain(options.best, options.seeds, options.jobs, options.beside, stop) if study.best else []
    written = results.write(study, retrained)
    print("\n".join([results.counts(study), *(results.table(study, retrained) if study.best else [])]))
    for file in written:
        print(file)
    if stop.signal is not None:
        print("stopped; the same command resumes it.")
        return 128 + stop.signal
    return 0 if study.best else 1
