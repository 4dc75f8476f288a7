"""Training: environment steps per second of whole runs, with acting, replay and learning."""

import contextlib
import pathlib
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from acme_ext import envs, launch
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.builders.base import Builder
from acme_ext.builders.dqn import DQN
from acme_ext.launch.engines.in_process import InProcessEngine
from acme_ext.launch.runs.directory import prepare
from acme_ext.launch.runs.start import check_start
from acme_ext.launch.session import open_session
from acme_ext.replay.config import TransitionConfig
from acme_ext.replay.stores import kind_of
from acme_ext.utils import loggers
from acme_ext.utils.rundir import RunDirectory
from benchmarks.shared.measure import by_turns
from benchmarks.shared.report import Figure, against, figure
from benchmarks.speed.plain_dqn import PlainLoop

_ENVIRONMENT = "gym:CartPole-v1"
_BATCHES = (1, 8, 32)
_TABLES = {"embedded": 0.95, "reverb": None}
"""The tables, and the goal relative to the plain loop."""
# An update with 128 transitions for every 4 environment steps.
_CONFIG = DQNConfig(hidden_sizes=(64, 64), batch_size=128, replay=TransitionConfig(n_step=1))
_WARM_UP = 10_000  # environment steps that aren't counted: start-up, compilation, filling
_STEPS_PER_SECOND = 8_000  # counted environment steps for each requested second


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures whole runs of DQN, in turns with a plain loop of the same algorithm."""
    rounds = max(1, rounds // 5)  # each round takes long here
    counted = max(1, int(seconds * _STEPS_PER_SECOND))
    return measure(_CONFIG, _BATCHES, _WARM_UP, counted, rounds)


def measure(config: DQNConfig, batches: Sequence[int], warm_up: int, counted: int, rounds: int) -> list[Figure]:
    """Measures `rounds` runs of each kind, without the first `warm_up` environment steps."""
    kinds: dict[str, Callable[[], float]] = {}
    tables = [table for table in _TABLES if table == "embedded" or kind_of("auto") == table]
    for num_envs in batches:
        for table in tables:
            kinds[f"{table} {num_envs}"] = lambda n=num_envs, table=table: whole_run(
                DQN(config), _ENVIRONMENT, n, warm_up, counted, table
            )
        kinds[f"plain {num_envs}"] = lambda n=num_envs: plain(n, warm_up, counted, config)
    measured = by_turns(kinds, rounds)
    return [
        figure(
            "training",
            f"launch.run, DQN on CartPole, table {table}, num_envs={num_envs}",
            "steps/s",
            ours := measured[f"{table} {num_envs}"],
            [
                against(
                    ours, "a plain JAX loop, NumPy ring, same batches", measured[f"plain {num_envs}"], _TABLES[table]
                ),
            ],
        )
        for num_envs in batches
        for table in tables
    ]


def whole_run(
    builder: Builder, environment: str, num_envs: int, warm_up: int, counted: int, table: Any = "auto"
) -> float:
    """Returns the environment steps per second of a run in one process, after the first `warm_up` steps."""
    with tempfile.TemporaryDirectory() as folder:
        experiment = launch.Experiment(
            builder,
            environment,
            steps=warm_up + counted,
            num_envs=num_envs,
            evaluation=launch.Evaluation(every=0, final_episodes=1, num_envs=1),
            checkpoints=launch.Checkpoints(every_s=1e9, replay=False),
            run_dir=str(pathlib.Path(folder) / "run"),
            table=table,
        )
        rundir = RunDirectory.open(launch.run(experiment, quiet=True).run_dir)
        # The actor's log has a row for each finished episode, the learner's 200 rows.
        paths = [loggers.csv_path(rundir, label) for label in ("actor", "learner")]
        logs = [loggers.read_csv(path) for path in paths if path.is_file()]
    steps, times = (np.concatenate([log[name] for log in logs]) for name in ("environment_steps", "wall_time_s"))
    order = np.argsort(times)
    steps, times = steps[order], times[order]
    steps, times = steps[steps >= warm_up], times[steps >= warm_up]
    return float((steps[-1] - steps[0]) / (times[-1] - times[0]))


def opened_run(
    stack: contextlib.ExitStack, experiment: launch.Experiment, record: str | None = None
) -> Callable[[], int]:
    """Opens a run in one process; returns a function that makes one step of it.

    The function steps the environments once, makes the learner steps that are due, and returns the number of
    environment steps taken. It skips the run's housekeeping, such as checkpoints and evaluations.
    """
    environment = experiment.make_environment(experiment.num_envs)
    stack.callback(environment.close)
    options = launch.RunOptions(record=record)
    start = check_start(experiment, envs.make_spec(environment), None, launch.InProcess(), options)
    rundir = prepare(experiment, *start.configs)
    session = stack.enter_context(open_session(rundir, experiment))
    engine = InProcessEngine(start, launch.InProcess(), session, environment, None, stack)

    def step() -> int:
        before = session.steps
        engine.advance()
        return session.steps - before

    return step


def dqn(num_envs: int, warm_up: int, counted: int) -> float:
    """Returns the environment steps per second of a run with this section's config."""
    return whole_run(DQN(_CONFIG), _ENVIRONMENT, num_envs, warm_up, counted)


def plain(num_envs: int, warm_up: int, counted: int, config: DQNConfig = _CONFIG) -> float:
    """Returns the environment steps per second of the plain loop with the same config."""
    loop = PlainLoop(DQN(config), _ENVIRONMENT, num_envs)
    while loop.steps < warm_up:
        loop.step()
    first, start = loop.steps, time.perf_counter()
    while loop.steps < warm_up + counted:
        loop.step()
    loop.close()
    return (loop.steps - first) / (time.perf_counter() - start)
