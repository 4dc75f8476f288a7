"""Runs an experiment, wherever its parts are executed: `launch.run`."""

import contextlib
import functools
import math
import os
import time
from collections.abc import Sequence

from acme_ext.errors import UsageError
from acme_ext.launch.engines.begin import begin, libraries
from acme_ext.launch.engines.engine import Engine
from acme_ext.launch.hosts.interrupt import Interrupt
from acme_ext.launch.placement import PROGRAMS, Compiled, InProcess, Placement, Program, RunOptions
from acme_ext.launch.runs.console import console
from acme_ext.launch.runs.directory import prepare
from acme_ext.launch.runs.evaluation import Result, Score
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.start import check_learner
from acme_ext.launch.session import Session, open_session
from acme_ext.launch.upkeep import Upkeep

_TICK_S = 0.05  # between updates of the progress line


def run(
    experiment: Experiment,
    on: Placement | None = None,
    *,
    fresh: bool = False,
    quiet: bool = False,
    record: str | os.PathLike[str] | None = None,
    snapshot_every: int | None = None,
    skip_damaged: bool = False,
    exact: bool = False,
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
        exact: resumes from the newest checkpoint of `Checkpoints.steps`, from which the run goes on exactly as if it
            had not been stopped; without it, from the newest checkpoint.

    Returns:
        The run's result. With several seeds in one compiled run, its score is of all their episodes, and `seeds` has
        the single results.

    Raises:
        UsageError: the arguments are invalid; nothing was started or written.
        RunError: the run had to stop (its loss was not finite, the disk is full, a node failed, ...); the last
            undamaged checkpoint remains. On threads, the node's own exception is raised.
    """
    on = InProcess() if on is None else on
    if not isinstance(experiment, Experiment):
        raise UsageError(f"{experiment!r} is no Experiment: give launch.Experiment(builder, environment).")
    if not isinstance(on, (InProcess, Compiled, *PROGRAMS.values())):
        raise UsageError(f"on is {on!r}: it must be InProcess(), Processes(), Threads(), Ray() or Compiled().")
    options = RunOptions(fresh, quiet, record, snapshot_every, skip_damaged, exact)
    on.check(experiment, options)
    if isinstance(on, Program):
        from acme_ext.launch.engines.program import start

        return start.run_program(experiment, on.for_run(experiment), options)
    with contextlib.ExitStack() as stack:
        stack.enter_context(libraries(experiment, on))
        progress, report, interrupt = stack.enter_context(console(experiment, quiet=quiet))
        start, make_engine = begin(experiment, on, options, report, stack)
        check_learner(experiment, start.agent, start.spec, options)
        for warning in start.warnings:
            report(warning)
        sessions = []
        for each, config in zip(start.experiments, start.configs, strict=True):
            rundir = prepare(each, config, fresh=fresh)
            sessions.append(stack.enter_context(open_session(rundir, each, report, progress, exact=exact)))
        if progress:
            report(f"the run directory is {on.directory(experiment)}")
        engine = make_engine(sessions)
        if snapshot_every:
            for index, session in enumerate(sessions):
                session.snapshot_every(snapshot_every, functools.partial(engine.loaded, index))
        scores = train(engine, sessions, interrupt)
        results = [session.result(score, interrupt) for session, score in zip(sessions, scores, strict=True)]
    return on.together(experiment, results)


def train(engine: Engine, sessions: Sequence[Session], interrupt: Interrupt) -> list[Score | None]:
    """Advances an engine until its sessions have used their budgets, or until a stop is requested.

    Meanwhile, and at the end, it does what is due in the sessions. If something raises an error, the run is saved
    first. Returns the score of each session's final evaluation, or None for each if a stop was requested.
    """
    upkeep = Upkeep(engine, sessions, interrupt)
    with upkeep.explaining():
        with upkeep.saved_if_it_fails():
            stops, tick = upkeep.stops(), -math.inf
            while not interrupt.requested:
                reached = all(session.steps >= stop for session, stop in zip(sessions, stops, strict=True))
                if reached:
                    upkeep.events()
                    stops = upkeep.stops()
                if (now := time.monotonic()) >= tick:
                    upkeep.tick()
                    tick = now + _TICK_S
                if reached and all(session.steps >= session.experiment.steps for session in sessions):
                    break
                engine.advance()
            engine.finish()
        return upkeep.end()
