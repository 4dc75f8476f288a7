"""`python -m benchmarks.speed.fanout --actors 16 64 256`: the load of a program's servers by the number of actors.

The learner, the coordinator, the inference server and the replay run as processes, as in any program. The actors are
a program's actors too, but run as threads of a few processes. Each actor steps an environment with image observations
at a fixed rate, gets its actions from the inference server, writes its transitions to the replay, and reports to the
coordinator. It also fetches new parameters, like actors that apply the policy themselves; the actors of one host share
a fetch. The learner steps at a fixed rate, so its CPU use shows what serving costs it.

A server is full when it uses one core. The number of actors for which it is full is computed from a line that is
fitted to the measured CPU use. The inference server's CPU use is that of its whole process, with compiled calls.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import dm_env
import launchpad as lp
import numpy as np
from dm_env import specs

from acme_ext import launch
from acme_ext.acting.remote import RemoteVariables
from acme_ext.acting.shared import SharedFetch
from acme_ext.acting.variables import VariableClient
from acme_ext.agents.dqn.config import ATARI, DQNConfig
from acme_ext.builders.base import Agent
from acme_ext.launch.engines.program.nodes.actor import ActorNode
from acme_ext.launch.engines.program.nodes.coordinator import Coordinator
from acme_ext.launch.engines.program.nodes.inference import InferenceNode
from acme_ext.launch.engines.program.nodes.learner import LearnerCourierNode, LearnerNode
from acme_ext.launch.engines.program.nodes.replay import ReplayNode
from acme_ext.launch.hosts import launcher
from acme_ext.launch.hosts.node_process import Options
from acme_ext.launch.runs.directory import prepare
from acme_ext.learning.learner import Learner
from acme_ext.replay.config import TransitionConfig
from acme_ext.utils import files, loggers
from acme_ext.utils.calls import TOKEN_BYTES
from benchmarks.shared import command, report
from benchmarks.speed.sections.program import Unlimited

RESULTS = pathlib.Path(__file__).parents[1] / "results"
_PROCESSES = 4  # processes for the actors' threads
_LOOK_S = 0.2
_SETTLE_S = 3.0
_PATIENCE_S = 240.0
_FULL = 0.9  # a server that serves less than this fraction of the demanded calls is full
_NODES = ("learner", "coordinator", "inference", "replay")
_HEAD = ["| actors | server | calls/s | MB/s | cores |", "|--:|---|--:|--:|--:|"]


class Demand(NamedTuple):
    """The load that actors and the learner put on the servers.

    Attributes:
        rate: environment steps/s of each actor.
        learner_rate: calls/s of the learner; each one makes new parameters.
        seconds: duration of the measurement.
        per_host: number of actors of each simulated host, which fetches parameters once for all of them.
    """

    rate: float
    learner_rate: float
    seconds: float
    per_host: int = 64

    def callers(self, actors: int) -> int:
        """Returns the number of hosts that fetch parameters from the learner."""
        return -(-actors // self.per_host)


class Load(NamedTuple):
    """The measured load of a server.

    Attributes:
        calls: calls per second, from all actors.
        nbytes: bytes per second of requests and answers, before compression.
        cores: number of cores that its process used.
    """

    calls: float
    nbytes: float
    cores: float


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Makes environments with image observations, which run at `rate` steps/s, in episodes of 100 steps."""

    rate: float

    def __call__(self, seed: int, evaluation: bool) -> dm_env.Environment:
        return _Pictures(seed, 0.0 if evaluation else 1.0 / self.rate)


class _Pictures(dm_env.Environment):
    def __init__(self, seed: int, period_s: float):
        # Squares of one colour, which compress about as well as a game's images.
        squares = np.random.default_rng(seed).integers(256, size=(8, 12, 12, 4), dtype=np.uint8)
        self._pictures = squares.repeat(7, axis=1).repeat(7, axis=2)
        self._period_s, self._next, self._at = period_s, time.monotonic(), 0

    def reset(self) -> dm_env.TimeStep:
        self._at = 0
        return dm_env.restart(self._pictures[0])

    def step(self, action: Any) -> dm_env.TimeStep:
        self._at += 1
        self._next = max(self._next + self._period_s, time.monotonic() - self._period_s)
        time.sleep(max(0.0, self._next - time.monotonic()))
        picture = self._pictures[self._at % len(self._pictures)]
        return dm_env.termination(1.0, picture) if self._at == 100 else dm_env.transition(0.0, picture)

    def observation_spec(self) -> Any:
        return specs.BoundedArray((84, 84, 4), np.uint8, 0, 255)

    def action_spec(self) -> Any:
        return specs.DiscreteArray(6)


@dataclasses.dataclass(frozen=True)
class Paced(Unlimited):
    """DQN with the Nature network and at most `learner_rate` learner calls per second."""

    learner_rate: float = 10.0

    def make_agent(self, spec: Any) -> Agent:
        agent = super().make_agent(spec)
        fields = {field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)}
        return _PacedAgent(**fields, learner_rate=self.learner_rate)


@dataclasses.dataclass(frozen=True)
class _PacedAgent(Agent):
    learner_rate: float = 10.0

    def make_learner(self, *arguments: Any, **named: Any) -> Learner:
        learner = super().make_learner(*arguments, **named)
        step, due = learner.step, time.monotonic()

        def paced() -> None:
            nonlocal due
            due = max(due + 1 / self.learner_rate, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))
            step()

        learner.step = paced  # type: ignore[method-assign]
        return learner


class _Counted:
    """A client that counts its calls and their bytes under a name."""

    def __init__(self, client: Any, counts: collections.Counter, name: str):
        self._client, self._counts, self._name = client, counts, name

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._client, method)

        def counted(*arguments: Any) -> Any:
            answer = call(*arguments)
            self._counts[self._name] += method != "end"  # `begin` and `end` are one call
            size = _size(arguments)
            if isinstance(answer, futures.Future):
                answer.add_done_callback(lambda done: self._add(_size(done.result())))
            else:
                size += _size(answer)
            self._add(size)
            return answer

        return counted

    @property
    def futures(self) -> "_Counted":
        return _Counted(self._client.futures, self._counts, self._name)

    def _add(self, size: int) -> None:
        self._counts[f"{self._name} bytes"] += size


def _size(message: Any) -> int:
    if isinstance(message, tuple) and message and isinstance(message[-1], np.ndarray):
        return message[-1].nbytes  # parameters
    return len(pickle.dumps(message, protocol=5))


class _Untouched(RemoteVariables):
    """Parameters that are fetched but not unpacked; in a real program, each actor host would unpack them itself."""

    @staticmethod
    def _unpack(payload: bytes) -> Any:
        return payload


class _Actor(ActorNode):
    """An actor that uses the inference server, but also fetches parameters."""

    def __init__(self, *arguments: Any, counts: collections.Counter, learner: Any, host: bytes, **named: Any):
        self.counts = counts
        fetch = SharedFetch(_Counted(learner, counts, "learner").newest, host)
        self._variables = _Untouched(fetch)
        super().__init__(*arguments, learner=learner, **named)
        self._stack.callback(self._variables.close)

    def _remote(self, *arguments: Any) -> Any:
        actor, version, writer = super()._remote(*arguments)
        remote = actor._inference
        remote._call = _Counted(remote._call, self.counts, "inference")
        remote.update = VariableClient(self._variables).update
        return actor, version, writer

    def _count(self, taken: int, version: int) -> None:
        super()._count(taken, version)
        self.counts["replay"] += taken


def _act(
    experiment: Any,
    indices: Sequence[int],
    actors: int,
    per_host: int,
    token: bytes,
    folder: pathlib.Path,
    replay: Any,
    learner: Any,
    inference: Any,
    coordinator: Any,
) -> None:
    """Runs actors in threads of this node, and records their numbers of calls a few times per second."""
    from launchpad.launch import worker_manager

    manager = worker_manager.get_worker_manager()
    agent = experiment.make_agent(experiment.make_spec())
    object.__setattr__(experiment, "make_agent", lambda spec: agent)  # making it takes long
    row_bytes = agent.replay.block * agent.replay.nbytes
    counts = [collections.Counter() for _ in indices]

    def run(index: int, mine: collections.Counter) -> None:
        worker_manager._WORKER_MANAGERS.manager = manager
        _Actor(
            experiment,
            index,
            actors,
            replay,
            1,
            inference=inference,
            coordinator=_Counted(coordinator, mine, "coordinator"),
            token=token,
            counts=mine,
            learner=learner,
            host=token + str(index // per_host).encode(),
        ).run()

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in zip(indices, counts, strict=True)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(_LOOK_S)
        total = dict(sum(counts, collections.Counter()))
        total["replay bytes"] = total.get("replay", 0) * row_bytes
        total["ready"] = sum(mine["replay"] > 0 for mine in counts)
        files.write_text(folder / f"actors-{indices[0]}.json", json.dumps({"time": time.monotonic(), **total}))


class _Watch:
    """Waits for all actors, measures for some seconds, and ends the program."""

    def __init__(self, folder: pathlib.Path, actors: int, seconds: float, coordinator: Any):
        self._folder, self._actors, self._seconds, self._coordinator = folder, actors, seconds, coordinator

    def run(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not self._all_there() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        time.sleep(_SETTLE_S)
        before = {**self._counts(), **self._cpu()}
        time.sleep(self._seconds)
        after = {**self._counts(), **self._cpu()}
        found = {"before": before, "after": after, "load": report.load()}
        (self._folder / "found.json").write_text(json.dumps(found))
        self._coordinator.request_stop()

    def _all_there(self) -> bool:
        log = self._folder / "run" / "logs" / "learner.csv"
        learns = log.is_file() and log.read_bytes().count(b"\n") > 2
        return learns and self._counts().get("ready", 0) == self._actors

    def _counts(self) -> dict[str, float]:
        total: collections.Counter = collections.Counter()
        notes = [json.loads(path.read_text()) for path in self._folder.glob("actors-*.json")]
        for note in notes:
            total.update(note)
        return {**total, "time": total["time"] / max(1, len(notes))}

    def _cpu(self) -> dict[str, float]:
        """Returns the CPU seconds that each server has used so far, and the time."""
        used = {"cpu time": time.monotonic()}
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                name = pathlib.Path(os.readlink(entry / "fd" / "1")).stem
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == os.getppid() and name in _NODES:
                    used[f"cpu {name}"] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return used


def make(experiment: Any, actors: int, demand: Demand, folder: pathlib.Path) -> lp.Program:
    """Returns the program."""
    spec, token = experiment.make_spec(), os.urandom(TOKEN_BYTES)
    rundir = prepare(experiment)
    settings = experiment.make_agent(spec).replay
    program = lp.Program("fanout")
    with program.group("replay"):
        replay = program.add_node(ReplayNode(settings, "reverb", token, rundir.replay.absolute(), None))
    with program.group("coordinator"):
        coordinator = program.add_node(lp.CourierNode(Coordinator, experiment, actors, 1, True))
    with program.group("learner"):
        learner = program.add_node(LearnerCourierNode(LearnerNode, token, experiment, spec, [replay], coordinator))
    with program.group("inference"):
        options = {"callers": 1, "experience": True, "token": token}
        server = lp.CourierNode(InferenceNode, experiment, spec, actors, [replay], learner, coordinator, **options)
        inference = program.add_node(server)
    with program.group("actor"):
        for indices in np.array_split(np.arange(actors), min(actors, _PROCESSES)):
            named = (actors, demand.per_host, token, folder, replay, learner, inference, coordinator)
            program.add_node(lp.PyNode(_act, experiment, indices.tolist(), *named))
    with program.group("watch"):
        program.add_node(lp.PyClassNode(_Watch, folder, actors, demand.seconds, coordinator))
    return program


def measure(actors: int, demand: Demand) -> tuple[dict[str, Load], float, float]:
    """Returns the load of each server with this number of actors, the learner's calls per second, and the machine's
    load.
    """
    with tempfile.TemporaryDirectory(prefix="fanout-") as name:
        folder = pathlib.Path(name)
        config = DQNConfig(
            image_features=ATARI.image_features,
            batch_size=8,
            sgd_steps_per_call=1,
            replay=TransitionConfig(min_size=16, max_size=5_000, rows_per_item=1),
        )
        experiment = launch.Experiment(
            Paced(config, learner_rate=demand.learner_rate),
            Pictures(demand.rate),
            steps=10**9,
            evaluation=launch.Evaluation(every=0),
            checkpoints=launch.Checkpoints(every_s=0.0, replay=False),
            run_dir=str(folder / "run"),
        )

        def load() -> Any:
            logs = folder / "run" / "logs" / "nodes"
            return lambda first: make(experiment, actors, demand, folder), Options(logs, 0, (), {"actor": 1})

        code = launcher.run("local", load, True)
        if not (folder / "found.json").is_file():
            raise RuntimeError(f"the program of {actors} actors ended with exit code {code} before the measurement")
        found = json.loads((folder / "found.json").read_text())
        before, after = found["before"], found["after"]

        def rate(name: str, clock: str) -> float:
            return (after.get(name, 0) - before.get(name, 0)) / (after[clock] - before[clock])

        loads = {
            name: Load(rate(name, "time"), rate(f"{name} bytes", "time"), rate(f"cpu {name}", "cpu time"))
            for name in _NODES
        }
        return loads, _learner_rate(folder / "run" / "logs" / "learner.csv"), found["load"]


def _learner_rate(path: pathlib.Path) -> float:
    """Returns the learner's calls per second in the second half of its log."""
    rows = loggers.read_csv(path)
    steps, times = rows["learner_steps"], rows["wall_time_s"]
    half = len(steps) // 2
    return float((steps[-1] - steps[half]) / (times[-1] - times[half])) if len(steps) - half > 1 else float("nan")


def full_at(numbers: Sequence[int], loads: Sequence[Load]) -> tuple[float, float | None]:
    """Returns the maximum number of callers of a server, and the cores that it used where it fell behind, if it did.

    If it fell behind, the number is computed from the calls that it served. Otherwise it is the estimated number for
    which the server needs one core.

    Args:
        numbers: numbers of callers, ascending.
        loads: the server's load for each of them.
    """
    demand = loads[0].calls / numbers[0]
    for actors, load in zip(numbers, loads, strict=True):
        if load.calls < _FULL * demand * actors:
            return load.calls / demand, load.cores
    if len(set(numbers)) == 1:
        return numbers[0] / max(1e-9, loads[0].cores), None
    slope, base = np.polyfit(numbers, [load.cores for load in loads], 1)
    return float((1 - base) / slope) if slope > 1e-9 else float("inf"), None


def page(found: Mapping[int, tuple[Mapping[str, Load], float, float]], demand: Demand) -> list[str]:
    """Returns the results by number of actors, as lines of Markdown."""
    lines = list(_HEAD)
    for actors, (loads, _, _) in found.items():
        for name, load in loads.items():
            lines.append(f"| {actors} | {name} | {load.calls:,.0f} | {load.nbytes / 1e6:,.1f} | {load.cores:.2f} |")
    lines += ["", "| server | full at | |", "|---|--:|---|"]
    for name in _NODES:
        who = f"hosts of {demand.per_host} actors" if name == "learner" else "actors"
        numbers = [demand.callers(actors) if name == "learner" else actors for actors in found]
        loads = [loads[name] for loads, _, _ in found.values()]
        # Where the learner is too slow the machine is full, and the loads of its servers say nothing.
        free = [i for i, (_, rate, _) in enumerate(found.values()) if rate >= _FULL * demand.learner_rate]
        place, cores = full_at(numbers, loads)
        if cores is None and free:
            place, cores = full_at([numbers[i] for i in free], [loads[i] for i in free])
        said = "computed: it would use one core"
        if cores is not None and cores >= _FULL:
            said = "measured: it answers no more than this"
        elif cores is not None:
            said = f"measured: it answered no more, with {cores:.2f} of a core, because the machine was full"
        lines.append(f"| {name} | {f'{place:,.0f}' if np.isfinite(place) else 'no number of'} {who} | {said} |")
    lines += [
        "",
        "| actors | learner calls/s, of " + f"{demand.learner_rate:g} | load of the machine |",
        "|--:|--:|--:|",
    ]
    lines += [f"| {actors} | {rate:.1f} | {load:.1f} |" for actors, (_, rate, load) in found.items()]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.fanout", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--actors", type=int, nargs="+", default=[16, 64, 256], metavar="N", help="numbers of actors (%(default)s)"
    )
    parser.add_argument(
        "--rate", type=float, default=2.0, metavar="R", help="environment steps/s per actor (%(default)s)"
    )
    parser.add_argument("--learner-rate", type=float, default=10.0, metavar="R", help="learner calls/s (%(default)s)")
    parser.add_argument("--per-host", type=int, default=64, metavar="N", help="actors per host (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=10.0, metavar="S", help="seconds of a measurement (%(default)s)"
    )
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="also write the page fanout.md to this folder")
    options = parser.parse_args(arguments)
    if options.per_host < 1:
        parser.error("--per-host must be at least 1.")
    demand = Demand(options.rate, options.learner_rate, options.seconds, options.per_host)
    facts = report.machine()
    found = {}
    for actors in sorted(options.actors):
        found[actors] = measure(actors, demand)
        print(f"{actors} actors: {found[actors]}", file=sys.stderr, flush=True)
    lines = page(found, demand)
    print("\n".join(lines))
    if options.out is not None:
        said = (
            f"`{command.line(parser, options)}`: actors of "
            f"{demand.rate:g} steps/s with observations of 84x84x4 bytes, DQN's Nature network, a learner of "
            f"{demand.learner_rate:g} calls/s; {demand.seconds:g} s each. Actors and servers share the cores. Up to "
            f"{demand.per_host} actors are played to be on one host, which fetches parameters once for all of them."
        )
        machine = ", ".join(f"{name} {value}" for name, value in facts.items())
        text = "\n".join(["# What servers have to do for many actors", "", said, "", *lines, "", f"{machine}.", ""])
        files.write_text(options.out / "fanout.md", text)
    return 0


if __name__ == "__main__":
    from benchmarks.speed import fanout  # nodes are unpickled with this module's classes, not with those of __main__

    sys.exit(fanout.main())
