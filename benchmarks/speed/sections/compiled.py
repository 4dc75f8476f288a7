"""Compiled runs: environment steps per second of PPO and DQN on CartPole, without the time to compile."""

import contextlib
import tempfile

from benchmarks.shared.measure import Contestant, rates
from benchmarks.shared.report import Figure, against, figure
from benchmarks.speed import compiled_loops
from benchmarks.speed.sections.acting import repeated
from benchmarks.speed.sections.training import opened_run

BATCHES = (8, 128)
_BARE_GOAL = 0.9
_SINGLE_GOALS = {"ppo": 20.0, "dqn": 10.0}


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures compiled loops, compared with bare loops of the same work and with runs in one process."""
    return [measure(name, num_envs, seconds, rounds) for name in _SINGLE_GOALS for num_envs in BATCHES]


def measure(name: str, num_envs: int, seconds: float, rounds: int) -> Figure:
    """Measures one agent with `num_envs` environments."""
    with contextlib.ExitStack() as stack:
        ours = compiled_loops.package_on_cartpole(name, num_envs)
        bare = getattr(compiled_loops, name)(num_envs)
        contestants = {
            "ours": Contestant(ours, prepare=ours),
            "bare": Contestant(bare, prepare=bare),
            "single": _single(stack, name, num_envs),
        }
        measured = rates(contestants, seconds, rounds)
    return figure(
        "compiled",
        f"launch.run_compiled, {name} on jax:CartPole-v1, num_envs={num_envs}",
        "steps/s",
        measured["ours"],
        [
            against(measured["ours"], "a bare compiled loop of the same work", measured["bare"], _BARE_GOAL),
            against(measured["ours"], "one process, gym:CartPole-v1", measured["single"], _SINGLE_GOALS[name]),
        ],
    )


def _single(stack: contextlib.ExitStack, name: str, num_envs: int) -> Contestant:
    """Returns a contestant for a run in one process."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    builder = compiled_loops.builder_of(name, num_envs)
    experiment = compiled_loops.experiment(builder, "gym:CartPole-v1", num_envs, folder)
    # For PPO, this is one batch.
    work = repeated(opened_run(stack, experiment), times=128 if name == "ppo" else 16).work
    return Contestant(work, prepare=work)
