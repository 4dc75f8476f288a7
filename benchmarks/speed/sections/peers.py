"""Other libraries: environment steps per second of whole runs, in turns with runs of ours that do the same work.

Each is a script in `benchmarks/speed/peers` with its own Python environment, which `make peers` makes. The work is one
of three: DQN on CartPole (an update with 128 transitions for every 4 steps, MLP 64x64), PPO on CartPole (8
environments, 10 epochs of 16 minibatches of 64 steps), SAC on Pendulum (an update with 256 transitions for every step).
"""

import pathlib
import subprocess
from collections.abc import Callable, Mapping
from typing import NamedTuple

from acme_ext.builders.ppo import PPO
from acme_ext.builders.sac import SAC
from acme_ext.errors import UsageError
from benchmarks.shared.measure import Contestant, best, by_turns, rates
from benchmarks.shared.report import Figure, against, figure
from benchmarks.speed import compiled_loops
from benchmarks.speed.sections import training

FOLDER = pathlib.Path(__file__).parents[1] / "peers"
ENVIRONMENTS = {"sb3": "sb3.py", "torch": "torch_loop.py", "acme": "acme_dqn.py"}
"""Peer -> its script; `torch` uses the Python environment of `sb3`."""

_PENDULUM = "gym:Pendulum-v1"


class Peer(NamedTuple):
    """A peer that our run is compared with."""

    name: str
    forms: tuple[str, ...]  # contestants, of which the fastest counts
    goal: float | None = None


class Work(NamedTuple):
    """One of our runs, by its contestant's name, and its peers."""

    name: str
    ours: str
    peers: tuple[Peer, ...]


_ONE = (
    Peer("a loop in PyTorch, one environment", ("torch",)),
    Peer("Acme 0.4.0 DQN, one environment", ("acme",), 20.0),
)
WORKS = (
    *(
        Work(
            f"launch.run, DQN on CartPole, num_envs={n}",
            f"ours {n}",
            (
                Peer("a plain JAX loop, NumPy ring, same batches", (f"plain {n}",), 0.8 if n == 1 else 0.7),
                Peer(f"Stable-Baselines3 DQN, {n} environment{'s' * (n > 1)}", (f"sb3 {n}",), 8.0 if n > 1 else None),
                *(_ONE if n > 1 else (_ONE[0], _ONE[1]._replace(goal=None))),
            ),
        )
        for n in (1, 8, 32)
    ),
    Work("launch.run, PPO on CartPole, num_envs=8", "ours ppo", (Peer("Stable-Baselines3 PPO", ("sb3 ppo",), 10.0),)),
    Work(
        "launch.run_compiled, PPO on CartPole, num_envs=8",
        "compiled ppo",
        (Peer("Stable-Baselines3 PPO", ("sb3 ppo",), 100.0),),
    ),
    Work(
        "launch.run, SAC on Pendulum, num_envs=1",
        "ours sac",
        (Peer("Stable-Baselines3 SAC, its best of 1 and 2 threads", ("sb3 sac 1", "sb3 sac 2"), 5.0),),
    ),
)


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures all entries of `WORKS`, with the runs in turns."""
    return measure(contestants(seconds), max(1, rounds // 5))


def measure(kinds: Mapping[str, Callable[[], float]], rounds: int) -> list[Figure]:
    """Measures `rounds` runs of each contestant."""
    measured = by_turns(kinds, rounds)
    return [
        figure(
            "peers",
            work.name,
            "steps/s",
            ours := measured[work.ours],
            [against(ours, p.name, best([measured[form] for form in p.forms]), p.goal) for p in work.peers],
        )
        for work in WORKS
    ]


def contestants(seconds: float) -> dict[str, Callable[[], float]]:
    """Returns functions by name that make a run and return its environment steps per second.

    Raises:
        UsageError: a peer's Python environment is missing.
    """
    for name in ("sb3", "acme"):
        if not python(name).is_file():
            raise UsageError(
                f"the peers' Python environments are missing ({python(name).parents[1]}): run `make peers`."
            )

    def ours(num_envs: int) -> Callable[[], float]:
        counted = int(seconds * (1_500 if num_envs == 1 else 8_000))
        return lambda: training.dqn(num_envs, 5_000, counted)

    kinds: dict[str, Callable[[], float]] = {}
    for n in (1, 8, 32):
        kinds[f"ours {n}"] = ours(n)
        kinds[f"plain {n}"] = lambda n=n: training.plain(n, 5_000, int(seconds * (2_000 if n == 1 else 10_000)))
        kinds[f"sb3 {n}"] = peer("sb3", seconds, "dqn", "--num-envs", str(n))
    kinds["torch"], kinds["acme"] = peer("torch", seconds), peer("acme", seconds)
    kinds["ours ppo"] = lambda: training.whole_run(PPO(), "gym:CartPole-v1", 8, 10_000, int(seconds * 15_000))
    kinds["compiled ppo"] = lambda: _alone(_compiled(), seconds)
    kinds["sb3 ppo"] = peer("sb3", seconds, "ppo", "--num-envs", "8")
    kinds["ours sac"] = lambda: training.whole_run(SAC(), _PENDULUM, 1, 2_500, int(seconds * 200))
    for threads in ("1", "2"):
        kinds[f"sb3 sac {threads}"] = peer("sb3", seconds, "sac", "--threads", threads)
    return kinds


def _compiled() -> Contestant:
    ours = compiled_loops.package_on_cartpole("ppo", 8)
    return Contestant(ours, prepare=ours)


def _alone(contestant: Contestant, seconds: float) -> float:
    """Returns the units per second of a contestant, after a warm-up."""
    return rates({"it": contestant}, seconds, 1)["it"].per_second


def python(environment: str) -> pathlib.Path:
    """Returns the interpreter of a peer's Python environment."""
    return FOLDER / ".venv" / environment / "bin" / "python"


def peer(name: str, seconds: float, *arguments: str) -> Callable[[], float]:
    """Returns a function that runs a peer's script for about `seconds` after its start, and returns its steps per
    second.
    """
    command = [python("acme" if name == "acme" else "sb3"), FOLDER / ENVIRONMENTS[name], *arguments]

    def run_it() -> float:
        done = subprocess.run(
            [*map(str, command), "--seconds", str(seconds)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{name} failed: {done.stderr[-2000:]}")
        return float(done.stdout.split()[-1])

    return run_it
