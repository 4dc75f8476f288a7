"""Runs an experiment, wherever its parts are executed: `launch.run`."""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from acme_ext import envs
from acme_ext.envs.canonical import own_actions
from acme_ext.errors import UsageError
from acme_ext.launch.engines.in_process import InProcessEngine
from acme_ext.launch.engines.recorded import RecordedEngine
from acme_ext.launch.placement import Compiled, InProcess, Placement, Program, RunOptions
from acme_ext.launch.runs.console import console
from acme_ext.launch.runs.directory import prepare
from acme_ext.launch.runs.evaluation import Result
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.recorded_data import read_rows
from acme_ext.launch.runs.start import Start, check_learner, check_start
from acme_ext.launch.session import Session, open_session
from acme_ext.launch.training import Engine, train
from acme_ext.replay import server
from acme_ext.types import EnvironmentSpec
from acme_ext.utils import worlds
from acme_ext.utils.native import native_stderr

Report = Callable[[str], None]
"""A function that shows a message to the user."""


def run(
    experiment: Experiment,
    on: Placement | None = None,
    *,
    fresh: bool = False,
    quiet: bool = False,
    record: str | os.PathLike[str] | None = None,
    snapshot_every: int | None = None,
    skip_damaged: bool = False,
) -> Result:
    """Runs an experiment until its budget is used, resuming from its run directory if possible.

    An experiment with `data` learns from the recorded data instead of acting.

    SIGINT (Ctrl-C) or SIGTERM stops the run after a last save. A second SIGINT ends the process, or raises
    KeyboardInterrupt in an interactive session.

    Args:
        experiment: the experiment to run.
        on: where its parts are executed: `InProcess`, `Processes`, `Threads`, `Ray` or `Compiled`. None: `InProcess()`.
        fresh: starts from the beginning even if the directory holds a part of this run.
        quiet: shows no progress line.
        record: a folder to record all complete training episodes to, see `data.format`. With several hosts, it must be
            on storage that they share.
        snapshot_every: steps of the budget between exports of the evaluation policy to `snapshots/STEP` in the run
            directory, see `acme-ext export`; None for no exports.
        skip_damaged: skips damaged parts of recorded data with a message, instead of raising an error.

    Returns:
        The run's result. With several seeds in one compiled run, its score is of all their episodes, and `seeds` has
        the single results.

    Raises:
        UsageError: the arguments are invalid; nothing was started or written.
        RunError: the run had to stop (its loss was not finite, the disk is full, a node failed, ...); the last
            undamaged checkpoint remains. On threads, the node's own exception is raised.
    """
    on = InProcess() if on is None else on
    if not isinstance(on, Placement):
        raise UsageError(f"on is {on!r}: it must be InProcess(), Processes(), Threads(), Ray() or Compiled().")
    options = RunOptions(fresh, quiet, record, snapshot_every, skip_damaged)
    on.check(experiment, options)
    if isinstance(on, Program):
        from acme_ext.launch.engines.program import start

        return start.run_program(experiment, on.for_run(experiment), options)
    begin = _compiled if isinstance(on, Compiled) else _in_process if experiment.data is None else _recorded
    if begin is _in_process:
        worlds.need_reverb("a run in one process")
        server.import_libraries()
    with contextlib.ExitStack() as stack:
        if begin is _in_process:
            stack.enter_context(native_stderr())
        progress, report, interrupt = stack.enter_context(console(experiment, quiet=quiet))
        start, make_engine = begin(experiment, on, options, report, stack)
        check_learner(experiment, start.agent, start.spec, options)
        for warning in start.warnings:
            report(warning)
        pairs = list(zip(start.experiments, start.configs, strict=True))
        rundirs = [prepare(each, config, fresh=fresh) for each, config in pairs]
        sessions = [
            stack.enter_context(open_session(rundir, each, report, progress))
            for rundir, each in zip(rundirs, start.experiments, strict=True)
        ]
        if progress:
            report(f"the run directory is {on.directory(experiment)}")
        engine = make_engine(sessions)
        if snapshot_every:
            for index, session in enumerate(sessions):
                session.snapshot_every(snapshot_every, functools.partial(engine.loaded, index))
        results = train(engine, sessions, interrupt)
    return on.together(experiment, results)


MakeEngine = Callable[[Sequence[Session]], Engine]
"""A function that makes an engine for a run's sessions, which are resumed if possible."""


def _in_process(
    experiment: Experiment, on: Any, options: RunOptions, report: Report, stack: contextlib.ExitStack
) -> tuple[Start, MakeEngine]:
    environment = experiment.make_environment(experiment.num_envs)
    stack.callback(environment.close)
    start = check_start(experiment, envs.make_spec(environment), own_actions(environment), on, options)
    demos = None if start.folder is None else read_rows(experiment, start.agent, start.folder, report)
    return start, lambda sessions: InProcessEngine(start, on, sessions[0], environment, demos, stack)


def _recorded(
    experiment: Experiment, on: Any, options: RunOptions, report: Report, stack: contextlib.ExitStack
) -> tuple[Start, MakeEngine]:
    start = check_start(experiment, *_specs(experiment), on, options)
    assert start.folder is not None
    rows = read_rows(experiment, start.agent, start.folder, report)
    report(f"{len(rows):,} {start.agent.replay.item}s of {start.folder.path}")
    return start, lambda sessions: RecordedEngine(start, sessions[0], rows, stack)


def _compiled(
    experiment: Experiment, on: Any, options: RunOptions, report: Report, stack: contextlib.ExitStack
) -> tuple[Start, MakeEngine]:
    from acme_ext.launch.engines.compiled import engine

    environment, evaluated = (engine.environment_of(experiment, evaluation=each) for each in (False, True))
    start = check_start(experiment, *_specs(experiment), on, options)
    loop = engine.make_loop(start, environment, on.seeds)
    return start, lambda sessions: engine.CompiledEngine(start, loop, evaluated, sessions)


def _specs(experiment: Experiment) -> tuple[EnvironmentSpec, Any]:
    """Creates an environment, and returns its spec and its original action spec."""
    with contextlib.closing(experiment.make_environment(1, evaluation=True)) as environment:
        return envs.make_spec(environment), own_actions(environment)
