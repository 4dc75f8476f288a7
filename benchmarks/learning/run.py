"""Trains an agent with several seeds, and checks its returns: `python -m benchmarks.learning SETTING`."""

import argparse
import dataclasses
import fnmatch
import multiprocessing.connection
import pathlib
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess

from acme_ext import launch
from acme_ext.commands import common
from acme_ext.config.assignments import split_assignments
from acme_ext.errors import UsageError, nearest
from acme_ext.launch.placement import PROGRAMS
from acme_ext.launch.runs import directory
from acme_ext.utils import files
from acme_ext.utils.rundir import RunDirectory
from benchmarks.learning import outcomes, recorded
from benchmarks.learning.settings import SETTINGS, Setting
from benchmarks.shared import command

RESULTS = pathlib.Path(__file__).parents[1] / "results"
FILE = "learning.json"  # in RESULTS; has the results of all settings
RUNS = pathlib.Path("runs") / "benchmarks"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code.

    0: the bars are reached; 1: a bar isn't reached, or a run failed; 2: a usage error; 128 + n: signal n stopped it.
    """
    options = _parser().parse_args(arguments)
    return command.run("benchmarks.learning", lambda: _main(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning",
        description=f"{__doc__} Finished runs are not run again; stopped runs are resumed.",
    )
    parser.add_argument(
        "setting", metavar="SETTING", nargs="?", help="a name, or a pattern such as 'dqn-*'; if missing, all are listed"
    )
    command.add(parser, "jobs", "fresh", seeds=[0, 1, 2, 3, 4], runs="runs/benchmarks/SETTING")
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="another budget of environment steps, without a bar; results are written to --runs",
    )
    common.add_set(
        parser, "another value for a field of the agent's config; requires --runs, to which results are written"
    )
    parser.add_argument(
        "--together", action="store_true", help="consecutive seeds of a compiled setting in one program, as for a GPU"
    )
    return parser


def _main(options: argparse.Namespace) -> int:
    if options.setting is None:
        print("\n".join(f"{name}: {setting}" for name, setting in SETTINGS.items()))
        return 0
    names = fnmatch.filter(SETTINGS, options.setting)
    if not names:
        raise UsageError(f"there is no setting {options.setting!r}: {nearest(options.setting, SETTINGS)}")
    if len(names) > 1 and options.runs:
        raise UsageError(f"--runs requires a single setting, and {options.setting!r} matches {len(names)}.")
    if options.jobs < 1 or (options.steps is not None and options.steps < 1):
        raise UsageError("--jobs and --steps must be at least 1.")
    command.check_seeds(options.seeds)
    changed = split_assignments(options.set)
    if changed and not options.runs:
        raise UsageError("--set requires --runs, because the runs differ from the setting's.")
    code = 0
    for name in names:
        code = max(code, _of_setting(name, changed, options))
        if code > 1:
            break
    return code


def _of_setting(name: str, changed: Mapping[str, str], options: argparse.Namespace) -> int:
    """Runs a setting; returns the exit code for `main`."""
    setting = SETTINGS[name]
    setting = dataclasses.replace(setting, config={**setting.config, **changed})
    runs = options.runs or RUNS / name
    out = options.out or (RESULTS if options.steps is None and not changed else runs)
    if options.steps is not None:
        setting = dataclasses.replace(setting, steps=options.steps, mean=None, least=None)
    files.make_writable_folder(out)
    if setting.demos is not None:
        recorded.make(setting.demos)
    if options.together:
        _check_together(name, setting, options.seeds)
        first = setting.experiment(options.seeds[0], setting.steps, runs)
        experiments, code = run_at_once(first, len(options.seeds), fresh=options.fresh)
    else:
        experiments = [setting.experiment(seed, setting.steps, runs / f"seed-{seed}") for seed in options.seeds]
        named = {f"seed {experiment.seed}": experiment for experiment in experiments}
        code = run_all(setting, named, options.jobs, fresh=options.fresh)
    if code:
        return code

    found = [outcomes.read(experiment, setting.parts, every_reply=setting.never_loses) for experiment in experiments]
    print("\n".join(outcomes.table(found)))
    print(outcomes.verdict(setting, found))
    outcomes.write(out / FILE, name, setting, found, device=options.together)
    print("written:", out / FILE)
    return 0 if outcomes.passed(setting, found) else 1


def _check_together(name: str, setting: Setting, seeds: Sequence[int]) -> None:
    if not setting.compiled:
        raise UsageError(f"{name} is not a compiled setting, so that its seeds can't run --together.")
    if list(seeds) != list(range(seeds[0], seeds[0] + len(seeds))):
        raise UsageError(f"--seeds is {' '.join(map(str, seeds))}: seeds that run --together must be consecutive.")


def run_all(setting: Setting, experiments: Mapping[str, launch.Experiment], jobs: int, *, fresh: bool) -> int:
    """Runs the unfinished experiments in separate processes, and prints their progress with their names.

    Returns 0, or the largest exit code of those that didn't finish.
    """
    codes: dict[str, int] = {}
    waiting = []
    for name, experiment in experiments.items():
        if not fresh and finished(experiment, setting):
            print(f"{name} is finished: {experiment.directory}")
        else:
            waiting.append(name)
    context = multiprocessing.get_context("spawn")
    running: dict[str, BaseProcess] = {}
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        for process in running.values():
            process.terminate()  # only this process got the signal; the runs save checkpoints and end

    before = signal.signal(signal.SIGTERM, stop)
    while running or (waiting and not stopped):
        try:
            while waiting and len(running) < jobs and not stopped:
                name = waiting.pop(0)
                print(f"{name}: {experiments[name].directory}", flush=True)
                # Progress lines are only shown if runs are made one at a time.
                process = context.Process(target=train, args=(experiments[name], setting, fresh, jobs > 1))
                process.start()
                running[name] = process
            multiprocessing.connection.wait([process.sentinel for process in running.values()])
        except KeyboardInterrupt:
            stopped = True  # the runs get the signal too; they save checkpoints and end
        for name in [name for name, process in running.items() if not process.is_alive()]:
            code = running.pop(name).exitcode or 0
            codes[name] = 128 - code if code < 0 else code
            stopped = stopped or code != 0
    signal.signal(signal.SIGTERM, before)
    failed = {name: code for name, code in codes.items() if code}
    if not failed and not waiting:
        return 0
    said = [f"{name} (exit code {code})" for name, code in failed.items()] + waiting
    print(f"not finished: {', '.join(said)}; the same command resumes them.")
    return max(failed.values(), default=128 + signal.SIGINT)


def run_at_once(
    experiment: launch.Experiment, seeds: int, *, fresh: bool = False
) -> tuple[list[launch.Experiment], int]:
    """Runs several seeds in one compiled program, unless all are finished.

    The first seed is the experiment's own.

    Returns the experiment of each seed, and 0, or the exit code if the program was stopped.
    """
    each = launch.Compiled(seeds=seeds).experiments(experiment)
    stopped = None
    if fresh or not all(finished(one) for one in each):
        stopped = launch.run(experiment, launch.Compiled(seeds=seeds), fresh=fresh, quiet=True).stopped_by
    return each, 128 + stopped if stopped else 0


def train(experiment: launch.Experiment, setting: Setting, fresh: bool, quiet: bool) -> None:
    """Runs a setting's experiment to its budget, then exits with the code of `acme-ext train`."""
    sys.exit(command.run("benchmarks.learning", lambda: _train(experiment, setting, fresh, quiet)))


def _train(experiment: launch.Experiment, setting: Setting, fresh: bool, quiet: bool) -> int:
    for part in range(1, setting.parts + 1):
        budget = dataclasses.replace(experiment, steps=max(1, experiment.steps * part // setting.parts))
        if setting.actors:
            kind = PROGRAMS[setting.on]
            on = kind(setting.actors, inference=setting.inference, experience=setting.experience)
            result = launch.run(budget, on, fresh=fresh and part == 1)
        elif setting.compiled:
            result = launch.run(budget, launch.Compiled(), fresh=fresh and part == 1, quiet=quiet)
        else:
            result = launch.run(budget, fresh=fresh and part == 1, quiet=quiet)
        if result.stopped_by is not None:
            return 128 + result.stopped_by
    return 0


def finished(experiment: launch.Experiment, setting: Setting | None = None) -> bool:
    """Whether an experiment's directory has its complete run, including the final evaluation.

    Raises UsageError if it has the run of another experiment, or one with another number of actors than the setting, or
    a compiled one if the setting is not, or the other way round; the message has the fields that differ.
    """
    if not (experiment.directory / "config.json").is_file():
        return False
    rundir = RunDirectory.open(experiment.directory)
    how = ("run.", "program.", "world")  # how it is run, which may differ
    found = rundir.compare(experiment.describe())
    different = {name: pair for name, pair in found.items() if not name.startswith(how)}
    steps, _ = found.get("run.steps", (0, 0))
    if steps > experiment.steps:  # its results are not those of this budget
        different["run.steps"] = found["run.steps"]
    if setting is not None:
        actors, world = (found.get(name, (None, None))[0] for name in ("program.actors", "world"))
        if (actors or 0) != setting.actors:
            different["program.actors"] = (actors or 0, setting.actors)
        if (world == "compiled") != setting.compiled:
            different["world"] = (world, "compiled" if setting.compiled else None)
    if different:
        raise UsageError(
            f"{rundir.path} holds another run: {directory.say_differences(different)}; delete it, or choose another "
            "folder (--runs)."
        )
    if any(name.startswith("run.evaluation.") for name in found):
        return False  # the last evaluation has to be made anew
    return rundir.evaluation.is_file() and rundir.read_evaluation()[experiment.step_key] >= experiment.steps
