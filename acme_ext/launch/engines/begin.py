"""Chooses the engine that advances a run in this process, after the checks that it needs."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from acme_ext import envs
from acme_ext.envs.canonical import own_actions
from acme_ext.launch.engines.engine import Engine
from acme_ext.launch.engines.in_process import InProcessEngine
from acme_ext.launch.engines.recorded import RecordedEngine
from acme_ext.launch.placement import Compiled, Placement, RunOptions
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.recorded_data import read_rows
from acme_ext.launch.runs.start import Start, check_start
from acme_ext.launch.session import Session
from acme_ext.replay import stores
from acme_ext.types import EnvironmentSpec
from acme_ext.utils.native import native_stderr

Begun = tuple[Start, Callable[[Sequence[Session]], Engine]]
"""A run that may start, and a function that makes its engine for its sessions, which are resumed if possible."""


@contextlib.contextmanager
def libraries(experiment: Experiment, on: Placement) -> Iterator[None]:
    """Imports what a run's replay needs, and hides what Reverb's C++ code prints."""
    kind = None if experiment.data is not None or isinstance(on, Compiled) else experiment.table_kind
    if kind != "reverb":
        yield
        return
    stores.import_libraries(kind)
    with native_stderr():
        yield


def begin(
    experiment: Experiment,
    on: Placement,
    options: RunOptions,
    report: Callable[[str], None],
    stack: contextlib.ExitStack,
) -> Begun:
    """Checks a run; nothing is written.

    Args:
        experiment: the experiment to run.
        on: where it is executed.
        options: the run's options.
        report: called with messages for the user.
        stack: closes what was made.

    Raises:
        UsageError: see `check_start`; or the run can't be compiled, or doesn't fit into memory.
    """
    if isinstance(on, Compiled):
        return _compiled(experiment, on, options)
    if experiment.data is not None:
        return _recorded(experiment, on, options, report, stack)
    return _in_process(experiment, on, options, report, stack)


def _in_process(
    experiment: Experiment, on: Any, options: RunOptions, report: Callable[[str], None], stack: contextlib.ExitStack
) -> Begun:
    environment = experiment.make_environment(experiment.num_envs)
    stack.callback(environment.close)
    start = check_start(experiment, envs.make_spec(environment), own_actions(environment), on, options)
    demos = None if start.folder is None else read_rows(experiment, start.agent, start.folder, report)
    return start, lambda sessions: InProcessEngine(start, on, sessions[0], environment, demos, stack)


def _recorded(
    experiment: Experiment, on: Any, options: RunOptions, report: Callable[[str], None], stack: contextlib.ExitStack
) -> Begun:
    start = check_start(experiment, *_specs(experiment), on, options)
    assert start.folder is not None
    rows = read_rows(experiment, start.agent, start.folder, report)
    if not options.quiet:
        report(f"{len(rows):,} {start.agent.replay.item}s of {start.folder.path}")
    return start, lambda sessions: RecordedEngine(start, sessions[0], rows, stack)


def _compiled(experiment: Experiment, on: Compiled, options: RunOptions) -> Begun:
    from acme_ext.launch.engines.compiled import engine
    from acme_ext.launch.engines.compiled.loops import Loop
    from acme_ext.launch.engines.compiled.memory import check_memory
    from acme_ext.launch.engines.compiled.sharding import Sharding

    environment, evaluated = (engine.environment_of(experiment, evaluation=each) for each in (False, True))
    start = check_start(experiment, *_specs(experiment), on, options)
    agent, devices = start.agent, experiment.devices()
    sharding = Sharding(devices, experiment.num_envs, agent.replay.batch_size) if devices else None
    loop = Loop(agent, environment, experiment.num_envs, type(experiment.builder).__name__, sharding)
    check_memory(jax.eval_shape(loop.init, *engine.keys_of(experiment)), loop, on.seeds)
    return start, lambda sessions: engine.CompiledEngine(start, loop, evaluated, sessions)


def _specs(experiment: Experiment) -> tuple[EnvironmentSpec, Any]:
    """Creates an environment; returns its spec and its original action spec, see `Start`."""
    with contextlib.closing(experiment.make_environment(1, evaluation=True)) as environment:
        return envs.make_spec(environment), own_actions(environment)
