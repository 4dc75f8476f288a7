"""Programs: the time to start and to stop, and the steps per second of their actors and learners."""

import dataclasses
import itertools
import os
import pathlib
import pickle
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import dm_env
import jax
import numpy as np
from dm_env import specs

from acme_ext import envs, launch
from acme_ext.agents.dqn.config import ATARI, DQNConfig
from acme_ext.builders.dqn import DQN
from acme_ext.launch.placement import PROGRAMS
from acme_ext.learning.learner import Learner
from acme_ext.replay.config import TransitionConfig
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.reverb.store import ReverbStore
from acme_ext.utils import loggers
from acme_ext.utils.rundir import RunDirectory
from benchmarks.shared import command
from benchmarks.shared.measure import Contestant, Rate, rates
from benchmarks.shared.report import Figure, Reference, against, figure
from benchmarks.speed.tables import fill

_ACTORS = (1, 2, 4)
_LATENCY_S = 3e-3  # seconds per environment step, like that of a remote simulator
_IDLE_S = 50e-3  # seconds per environment step if actors should leave the cores to the learner
_LEAST_S = 10.0  # minimum seconds of a measurement, because nodes log at most once per second
_STOP_S = 3.0  # seconds in which a program should end
_LEARNER_GOAL = 0.6  # relative to the same learner on a resident batch
_PATIENCE_S = 300.0
_LOOK_S = 0.01
_MLP = DQNConfig(hidden_sizes=(64, 64), batch_size=128, replay=TransitionConfig(n_step=3, min_size=200))
_BLOCKS = dataclasses.replace(
    _MLP, sgd_steps_per_call=8, replay=TransitionConfig(n_step=3, min_size=200, rows_per_item=16)
)
_LARGE_MLP = DQNConfig(hidden_sizes=(512, 512), batch_size=256, replay=TransitionConfig(n_step=3, min_size=300))
_NATURE = DQNConfig(
    image_features=ATARI.image_features,
    batch_size=32,
    replay=TransitionConfig(n_step=3, min_size=100, max_size=2_000),
    sgd_steps_per_call=ATARI.sgd_steps_per_call,
)


@dataclasses.dataclass(frozen=True)
class Unlimited(DQN):
    """DQN without a limit on the learner's rate."""

    def make_replay(self, spec: Any, networks: Any) -> Any:
        replay = super().make_replay(spec, networks)
        return dataclasses.replace(replay, limit=RateLimit(min_size=self.config.replay.min_size))


@dataclasses.dataclass(frozen=True)
class Timed:
    """Makes environments that record the times of their first and last steps, each in a file of `folder`."""

    environment: str  # "images" for random images, in episodes of 20 steps
    sleep_s: float
    folder: str

    def __call__(self, seed: int, evaluation: bool) -> dm_env.Environment:
        environment = (
            _Images(seed)
            if self.environment == "images"
            else envs.make_single(self.environment, seed=seed, evaluation=evaluation)
        )
        return environment if evaluation else _Noting(environment, self.sleep_s, pathlib.Path(self.folder))


class _Noting(dm_env.Environment):
    def __init__(self, environment: dm_env.Environment, sleep_s: float, folder: pathlib.Path):
        self._environment, self._sleep_s, self._folder = environment, sleep_s, folder
        self._file: int | None = None

    def reset(self) -> dm_env.TimeStep:
        return self._environment.reset()

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._file is None:
            self._file = os.open(self._folder / f"{os.getpid()}", os.O_WRONLY | os.O_CREAT)
            os.pwrite(self._file, struct.pack("d", time.time()), 0)
        time.sleep(self._sleep_s)
        timestep = self._environment.step(action)
        os.pwrite(self._file, struct.pack("d", time.time()), 8)
        return timestep

    def observation_spec(self) -> Any:
        return self._environment.observation_spec()

    def action_spec(self) -> Any:
        return self._environment.action_spec()


class _Images(dm_env.Environment):
    def __init__(self, seed: int):
        self._images = np.random.default_rng(seed).integers(256, size=(21, 84, 84, 4), dtype=np.uint8)
        self._at = 0

    def reset(self) -> dm_env.TimeStep:
        self._at = 0
        return dm_env.restart(self._images[0])

    def step(self, action: Any) -> dm_env.TimeStep:
        self._at += 1
        if self._at == 20:
            return dm_env.termination(1.0, self._images[20])
        return dm_env.transition(0.0, self._images[self._at])

    def observation_spec(self) -> Any:
        return specs.BoundedArray((84, 84, 4), np.uint8, 0, 255)

    def action_spec(self) -> Any:
        return specs.DiscreteArray(6)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A program to measure.

    Attributes:
        builder: the agent.
        environment: see `Timed`.
        actors: number of actors.
        sleep_s: seconds that an environment's step sleeps.
        seconds: how long it learns until it is interrupted; None if it ends by itself.
        steps: budget of environment steps, if it ends by itself.
        on: where the nodes run.
    """

    builder: DQN
    environment: str = "gym:CartPole-v1"
    actors: int = 2
    sleep_s: float = 0.0
    seconds: float | None = None
    steps: int = 10**9
    on: str = "processes"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a trial; times are in seconds."""

    first_action: float  # from the start of the command
    first_learner_step: float  # likewise
    stop: float  # from the last environment step, or from the interrupt, to the end of the command
    actor_rate: float  # environment steps/s, after the learner's first step
    learner_rate: float  # learner steps/s, likewise


def attempt(trial: Trial) -> Outcome:
    """Runs a trial as a separate command."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "steps").mkdir()
        (folder / "trial").write_bytes(pickle.dumps(trial))
        code = f"from benchmarks.speed.sections import program; program.main({name!r})"
        path = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
        started = time.time()
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        learned = interrupted = None
        try:
            learned = _wait_for_learner(process, folder)
            if trial.seconds is not None:
                time.sleep(trial.seconds)
                interrupted = time.time()
                process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=_PATIENCE_S)
            ended = time.time()
        finally:
            process.kill()
            process.wait()
        if process.returncode not in (0, 128 + signal.SIGINT):
            raise RuntimeError(f"the program failed: {out.decode(errors='replace')}")
        times = [struct.unpack("dd", file.read_bytes()) for file in (folder / "steps").iterdir()]
        stopping = interrupted if interrupted is not None else max(last for _, last in times)
        return Outcome(
            first_action=min(first for first, _ in times) - started,
            first_learner_step=learned - started,
            stop=ended - stopping,
            actor_rate=_rate(folder, "actor", "environment_steps"),
            learner_rate=_rate(folder, "learner", "learner_steps"),
        )


def main(name: str) -> None:
    """Runs the trial that is stored in a folder; the entry point of the command."""
    command.end_with(os.getppid())
    folder = pathlib.Path(name)
    trial: Trial = pickle.loads((folder / "trial").read_bytes())
    experiment = launch.Experiment(
        trial.builder,
        Timed(trial.environment, trial.sleep_s, str(folder / "steps")),
        steps=trial.steps,
        evaluation=launch.Evaluation(every=0, final_episodes=1, num_envs=1),
        checkpoints=launch.Checkpoints(every_s=1e9),
        run_dir=str(folder / "run"),
    )
    result = launch.run(experiment, PROGRAMS[trial.on](actors=trial.actors), quiet=True)
    sys.exit(0 if result.stopped_by is None else 128 + result.stopped_by)


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures programs of several processes, in turns."""
    return measure(max(_LEAST_S, seconds), max(1, rounds // 5), _ACTORS, _settings())


def measure(
    seconds: float, rounds: int, numbers: Sequence[int], settings: Sequence[tuple[str, str, DQNConfig]]
) -> list[Figure]:
    """Measures `rounds` programs of each kind, which run for `seconds` each; see `_settings`."""
    trials = {"stop": Trial(DQN(_MLP), steps=2_000, sleep_s=_LATENCY_S / 3)}
    for actors in numbers:
        trials[f"latency {actors}"] = Trial(DQN(_MLP), actors=actors, sleep_s=_LATENCY_S, seconds=seconds)
        trials[f"cpu {actors}"] = Trial(DQN(_MLP), actors=actors, seconds=seconds)
    for name, environment, config in settings:
        # The four actors are mostly idle, but soon have enough transitions for the learner to start.
        trials[name] = Trial(Unlimited(config), environment, actors=4, sleep_s=_IDLE_S, seconds=seconds)
    found: dict[str, list[Outcome]] = {kind: [] for kind in trials}
    imports: list[float] = []
    resident: dict[str, list[float]] = {name: [] for name, _, _ in settings}
    for _ in range(rounds):
        imports.append(_importing())
        for kind, trial in trials.items():
            found[kind].append(attempt(trial))
        for name, environment, config in settings:
            resident[name].append(_resident(environment, config, seconds))
    return [
        *_times(found, imports),
        *_actor_rates(found, numbers),
        *(_learner_rate(name, found[name], resident[name]) for name, _, _ in settings),
    ]


def _settings() -> list[tuple[str, str, DQNConfig]]:
    """Returns the networks whose learners are measured.

    The steps of one are much shorter than Reverb's time for a batch; the steps of the other two take a millisecond or
    more.
    """
    return [
        ("MLP 64x64, batch 128", "gym:CartPole-v1", _MLP),
        ("MLP 64x64, batch 128, blocks of 16, 8 a call", "gym:CartPole-v1", _BLOCKS),
        ("MLP 512x512, batch 256", "gym:CartPole-v1", _LARGE_MLP),
        ("Nature CNN, batch 32", "images", _NATURE),
    ]


def _times(found: dict[str, list[Outcome]], imports: Sequence[float]) -> list[Figure]:
    starts = found["stop"]
    scale = statistics.median(imports)

    def start(name: str, values: list[float]) -> Figure:
        ours = statistics.median(values)
        ratio = statistics.median(a / b for a, b in zip(values, imports, strict=True))
        return _seconds(name, values, Reference("one process that imports JAX and Reverb, s", scale, ratio), ours)

    def stop(name: str, values: list[float]) -> Figure:
        ours = statistics.median(values)
        limit = Reference("the limit, s (ratio: limit / ours)", _STOP_S, _STOP_S / ours, 1.0, source="computed")
        return _seconds(name, values, limit, ours)

    interrupted = [o.stop for kind, outcomes in found.items() if kind.startswith("latency") for o in outcomes]
    return [
        start("start-up to the first action", [o.first_action for o in starts]),
        start("start-up to the first learner step", [o.first_learner_step for o in starts]),
        stop("stop: last step to exit, saved and evaluated", [o.stop for o in starts]),
        stop("stop: Ctrl-C to exit, saved", interrupted),
    ]


def _seconds(name: str, values: Sequence[float], reference: Reference, value: float) -> Figure:
    return Figure("program", name, "s", value, min(values), max(values), None, (reference,))


def _actor_rates(found: dict[str, list[Outcome]], numbers: Sequence[int]) -> list[Figure]:
    figures = []
    for kind, said in (("latency", f"steps of {1e3 * _LATENCY_S:g} ms"), ("cpu", "steps of CPU alone")):
        first = _as_rate([o.actor_rate for o in found[f"{kind} {numbers[0]}"]])
        for actors in numbers:
            ours = _as_rate([o.actor_rate for o in found[f"{kind} {actors}"]])
            name = f"DQN on CartPole, {said}, {actors} actors"
            references = [against(ours, f"{numbers[0]} actor", first)]
            if kind == "latency":
                bound = Rate((actors / _LATENCY_S,) * len(ours.rounds))
                references.append(against(ours, "the environments alone", bound, source="computed"))
            figures.append(figure("program", name, "steps/s", ours, references))
    return figures


def _learner_rate(name: str, outcomes: Sequence[Outcome], resident: Sequence[float]) -> Figure:
    ours, limit = _as_rate([o.learner_rate for o in outcomes]), _as_rate(resident)
    reference = against(ours, "the same learner on a resident batch", limit, _LEARNER_GOAL)
    return figure("program", f"learner, {name}, idle actors", "SGD steps/s", ours, [reference])


def _as_rate(values: Sequence[float]) -> Rate:
    return Rate(tuple(values))


def _importing() -> float:
    start = time.perf_counter()
    code = (
        "import jax, haiku, optax, acme_ext.launch.runner\n"
        "from acme_ext.replay import server; server.import_libraries()"
    )
    path = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True)
    return time.perf_counter() - start


def _resident(environment: str, config: DQNConfig, seconds: float) -> float:
    """Returns the steps per second of the program's learner in this process, on a single repeated batch."""
    builder = Unlimited(config)
    single = _Images(0) if environment == "images" else envs.make_single(environment)
    spec = envs.make_spec(single)
    agent = builder.make_agent(spec)
    replay = agent.replay
    server = ReverbStore(replay)
    fill(server.table, replay, _timesteps(spec), 1 + 3 * config.replay.min_size // 20)
    dataset = server.table.batches(config.sgd_steps_per_call)
    raw = next(dataset)
    dataset.close(wake=True)
    learner = Learner(
        agent.core,
        itertools.repeat(raw),
        replay.decode,
        jax.random.key(0),
        batch_size=replay.batch_size,
        steps_per_call=config.sgd_steps_per_call,
    )

    def work() -> int:
        learner.step()
        return config.sgd_steps_per_call

    contestant = Contestant(work, lambda: jax.block_until_ready(learner.save()), learner.step)
    found = rates({"resident": contestant}, seconds, 1)
    learner.close()
    server.close()
    return found["resident"].per_second


def _timesteps(spec: Any) -> list[dm_env.TimeStep]:
    """Returns an episode of one environment, with 20 steps of random observations."""
    rng, shape = np.random.default_rng(0), spec.observations.shape
    made = []
    for place in range(21):
        step_type = np.full(1, 0 if place == 0 else 2 if place == 20 else 1, np.uint8)
        made.append(
            dm_env.TimeStep(
                step_type=step_type,
                reward=(step_type != 0).astype(np.float32),
                discount=(step_type != 2).astype(np.float32),
                observation=rng.integers(256, size=(1, *shape)).astype(spec.observations.dtype),
            )
        )
    return made


def _wait_for_learner(process: subprocess.Popen, folder: pathlib.Path) -> float:
    """Returns the time when the learner's first step was logged."""
    log, deadline = folder / "run" / "logs" / "learner.csv", time.time() + _PATIENCE_S
    while not (log.is_file() and log.read_bytes().count(b"\n") > 1):
        if process.poll() is not None or time.time() > deadline:
            process.kill()
            out, _ = process.communicate()
            raise RuntimeError(f"the program did not learn: {out.decode(errors='replace')}")
        time.sleep(_LOOK_S)
    return time.time()


def _rate(folder: pathlib.Path, label: str, column: str) -> float:
    """Returns the rate of a count in the program's log, from the learner's second row on: after compilation."""
    rundir = RunDirectory.open(folder / "run")
    learner = loggers.read_csv(loggers.csv_path(rundir, "learner"))["wall_time_s"]
    rows = loggers.read_csv(loggers.csv_path(rundir, label))
    steady = rows["wall_time_s"] >= learner[min(1, len(learner) - 1)]
    if steady.sum() < 2:
        steady[:] = True
    counts, times = rows[column][steady], rows["wall_time_s"][steady]
    if len(counts) < 2 or times[-1] <= times[0]:
        return float("nan")
    return float((counts[-1] - counts[0]) / (times[-1] - times[0]))
