"""Accelerators: PPO with thousands of environments, and IMPALA's deep network compared with the device's peak.

It needs none of the packages that only exist for Python 3.10. The runs with pictures require the extra `navix`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.policy import Context
from acme_ext.acting.variables import POLICY
from acme_ext.agents.impala.config import ATARI
from acme_ext.builders.base import Agent
from acme_ext.builders.impala import IMPALA
from acme_ext.types import EnvironmentSpec, Sample, Sequence
from benchmarks.shared.measure import Contestant, Rate, rates
from benchmarks.shared.report import Figure, Reference, against, figure
from benchmarks.speed import compiled_loops, images

ENVIRONMENTS = (2_048, 16_384, 65_536)
UNROLLS = (32, 256)  # per batch
PICTURES = "jax:navix/DoorKey-8x8"  # images of 56 x 56 pixels with view=picture
_NUM_ENVS = 256  # of PICTURES
_GOAL = 5e6  # steps/s of PPO with the most environments
_BARE_GOAL = 0.9
_SIDE = 8_192  # of the square matrices whose product defines the peak
_STEPS_A_CALL = 4


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures compiled PPO, compared with a bare loop, and the deep network's learner, compared with the peak."""
    return [
        *(cartpole(num_envs, seconds, rounds) for num_envs in ENVIRONMENTS),
        *(atari(unrolls, seconds, rounds) for unrolls in UNROLLS),
        pictures(_NUM_ENVS, seconds, rounds),
    ]


def cartpole(num_envs: int, seconds: float, rounds: int) -> Figure:
    """Measures PPO on CartPole with `num_envs` environments."""
    calls = {
        "ours": compiled_loops.package_on_cartpole("ppo", num_envs, 1),
        "bare": compiled_loops.ppo(num_envs, 1),
    }
    measured = rates({name: Contestant(call, prepare=call) for name, call in calls.items()}, seconds, rounds)
    ours = measured["ours"]
    references = [against(ours, "a bare compiled loop of the same work", measured["bare"], _BARE_GOAL)]
    if num_envs == max(ENVIRONMENTS):
        references.append(Reference("the goal", _GOAL, ours.per_second / _GOAL, 1.0, source="computed"))
    return figure(
        "accelerator", f"launch.run_compiled, ppo on jax:CartPole-v1, num_envs={num_envs}", "steps/s", ours, references
    )


def atari(unrolls: int, seconds: float, rounds: int) -> Figure:
    """Measures the learner on batches of so many unrolls of 20 steps with Atari's images, compared with the peak."""
    learner = Learner(_agent(images.SPEC, unrolls), images.SPEC)
    measured = rates({"ours": learner.contestant, **_products()}, seconds, rounds)
    name = f"learner step, impala, deep network, {_shape(images.SPEC)}, {unrolls} unrolls of 20 steps"
    return figure("accelerator", name, "steps/s", measured["ours"], _beside_peak(learner, measured))


def pictures(num_envs: int, seconds: float, rounds: int) -> Figure:
    """Measures a compiled run with pictures, compared with its learner alone and with the peak."""
    experiment = compiled_loops.experiment(_builder(num_envs), PICTURES, num_envs, view="picture")
    spec = experiment.make_spec()
    learner = Learner(_agent(spec, num_envs), spec)
    call = compiled_loops.package(experiment, 1)
    contestants = {"ours": Contestant(call, prepare=call), "learner": learner.contestant, **_products()}
    measured = rates(contestants, seconds, rounds)
    ours = measured["ours"]
    references = [against(ours, "its learner step alone", measured["learner"]), *_beside_peak(learner, measured)]
    name = f"launch.run_compiled, impala, deep network, {PICTURES}, {_shape(spec)}, num_envs={num_envs}"
    return figure("accelerator", name, "steps/s", ours, references)


class Learner:
    """An agent's learner step on a batch of random unrolls that stays on the device."""

    def __init__(self, agent: Agent, spec: EnvironmentSpec):
        unrolls, length = agent.replay.batch_size, agent.replay.length
        state = jax.jit(agent.core.init)(jax.random.key(0))
        sample = jax.device_put(Sample(_unrolls(agent, state, spec, length, unrolls), np.ones(unrolls, np.float32)))
        step = jax.jit(agent.core.step, donate_argnums=0)
        with jax.default_device(jax.local_devices(backend="cpu")[0]):  # XLA doesn't count them for a GPU
            cost: Any = step.lower(*jax.eval_shape(lambda *both: both, state, sample)).cost_analysis()
        self.flops: float = cost["flops"] / (length * unrolls)
        """Floating-point operations per environment step, as XLA counts them before its optimizations."""

        def work() -> int:
            nonlocal state
            for _ in range(_STEPS_A_CALL):
                state, metrics, _ = step(state, sample)
            jax.block_until_ready(metrics)
            return _STEPS_A_CALL * length * unrolls

        self.contestant = Contestant(work, prepare=work)
        """Its units are environment steps."""


def _unrolls(agent: Agent, state: Any, spec: EnvironmentSpec, length: int, unrolls: int) -> Sequence:
    """Returns random unrolls `[length, unrolls, ...]`, as an agent without a recurrent state stores them."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (length + 1, unrolls, *spec.observations.shape), dtype=np.uint8)
    first = np.zeros((length + 1, unrolls), bool)
    keys = jax.random.split(jax.random.key(1), unrolls)
    context = Context(keys, np.int32(0), np.zeros(unrolls, np.float32), np.zeros(unrolls, np.float32), first[0])
    params = agent.core.variables(state)[POLICY]
    action, _, extras = jax.jit(agent.policy.apply)(params, context, pixels[0], agent.policy.init_state(unrolls))
    action, extras = jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], length, 0), (action, extras))
    return Sequence(
        observation=pixels,
        reward=rng.normal(size=(length + 1, unrolls)).astype(np.float32),
        first=first,
        action=action,
        discount=np.full((length, unrolls), 0.99, np.float32),
        mask=np.ones((length, unrolls), np.float32),
        extras=extras,
        state=(),
    )


def _products() -> dict[str, Contestant]:
    """Returns contestants that multiply large matrices; their units are floating-point operations."""
    return {name: _product(dtype) for name, dtype in (("float32", jnp.float32), ("bfloat16", jnp.bfloat16))}


def _product(dtype: Any) -> Contestant:
    a, b = (jax.random.normal(jax.random.key(i), (_SIDE, _SIDE), dtype) for i in range(2))
    product = jax.jit(jnp.matmul)

    def work() -> int:
        for _ in range(_STEPS_A_CALL):
            made = product(a, b)
        jax.block_until_ready(made)
        return _STEPS_A_CALL * 2 * _SIDE**3

    return Contestant(work, prepare=work)


def _beside_peak(learner: Learner, measured: dict[str, Rate]) -> list[Reference]:
    """Returns references: the environment steps per second with which the learner would reach the device's peak."""
    return [
        against(
            measured["ours"],
            f"{learner.flops / 1e6:.3g} MFLOP a step at the peak of {dtype} products, "
            f"{measured[dtype].per_second / 1e12:.3g} TFLOP/s",
            Rate(tuple(rate / learner.flops for rate in measured[dtype].rounds)),
            source="computed",
        )
        for dtype in ("float32", "bfloat16")
    ]


def _builder(unrolls: int) -> IMPALA:
    replay = dataclasses.replace(ATARI.replay, max_size=unrolls)
    return IMPALA(dataclasses.replace(ATARI, batch_size=unrolls, replay=replay), torso="residual", average_rate=None)


def _agent(spec: EnvironmentSpec, unrolls: int) -> Agent:
    return dataclasses.replace(_builder(unrolls).make_agent(spec), sgd_steps_per_call=1)


def _shape(spec: EnvironmentSpec) -> str:
    return " x ".join(map(str, spec.observations.shape))
