"""A small regression to learn, DQN's own core, and raw batches for both."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import acme.specs
import jax.numpy as jnp
import numpy as np
import optax
import tree
from dm_env import specs

from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.builders.dqn import DQN
from acme_ext.learning.core import LearnerCore, LossOutput, TargetUpdate, single_loss_core
from acme_ext.replay.config import TransitionConfig
from acme_ext.replay.rows import Layout
from acme_ext.replay.table import RawBatch
from acme_ext.types import Transition

ROW = Layout({"x": np.zeros(3, np.float32), "y": np.zeros((), np.float32)})

SPEC = acme.specs.EnvironmentSpec(
    observations=specs.Array((4,), np.float32),
    actions=specs.DiscreteArray(3, np.int32),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
)


class Weights(NamedTuple):
    w: Any
    b: Any


def regression(*, prioritized: bool = True, root: bool = False) -> LearnerCore:
    """Linear regression; with `root` the loss is the root of the mean square, whose gradient at zero is not finite."""

    def loss(params, target_params, data, weight, key):
        error = data["x"] @ params.w + params.b - data["y"]
        value = jnp.mean(weight * error**2)
        if root:
            value = jnp.sqrt(value)
        return value, LossOutput({"bias": params.b}, jnp.abs(error) if prioritized else None)

    return single_loss_core(
        loss,
        lambda key: Weights(jnp.zeros(3), jnp.zeros(())),
        optax.adam(0.03),
        target_update=TargetUpdate(3),
    )


def regression_batches(count: int, size: int, seed: int = 0) -> list[RawBatch]:
    """Batches of y = x . (1, 2, 3) + 0.5, drawn with uneven probabilities."""
    rng = np.random.default_rng(seed)
    batches = []
    for i in range(count):
        x = rng.normal(size=(size, 3)).astype(np.float32)
        rows = ROW.pack([x, x @ np.array([1, 2, 3], np.float32) + 0.5])
        keys = np.arange(i * size, (i + 1) * size, dtype=np.uint64)
        batches.append(RawBatch(rows, keys, rng.uniform(1e-4, 1e-2, size).astype(np.float32)))
    return batches


def join(batches: Sequence[RawBatch], together: int) -> Iterator[RawBatch]:
    """The same batches, several at a time end to end."""
    for i in range(0, len(batches), together):
        group = batches[i : i + together]
        yield RawBatch(*(np.concatenate(parts) for parts in zip(*(each[:3] for each in group), strict=True)))


def dqn(prioritized: bool) -> tuple[LearnerCore, Any]:
    """DQN's core and its replay."""
    replay = TransitionConfig(prioritized=prioritized, min_size=16)
    agent = DQN(DQNConfig(batch_size=16, hidden_sizes=(16,), dueling=True, replay=replay)).make_agent(SPEC)
    return agent.core, agent.replay


def dqn_batches(count: int, size: int, seed: int = 0) -> list[RawBatch]:
    """Batches of transitions with random numbers; the rarest item of each lies in its last quarter."""
    rng = np.random.default_rng(seed)
    scalar = np.zeros((), np.float32)
    layout = Layout(Transition(SPEC.observations, SPEC.actions, scalar, scalar, SPEC.observations, ()))
    batches = []
    for i in range(count):
        batch = Transition(
            rng.normal(size=(size, 4)).astype(np.float32),
            rng.integers(0, 3, size).astype(np.int32),
            rng.normal(size=size).astype(np.float32),
            rng.choice(np.array([0.0, 0.97], np.float32), size),
            rng.normal(size=(size, 4)).astype(np.float32),
        )
        probability = rng.uniform(1e-3, 1e-2, size).astype(np.float32)
        probability[-1] = 1e-4
        keys = np.arange(i * size, (i + 1) * size, dtype=np.uint64)
        batches.append(RawBatch(layout.pack(tree.flatten(batch)), keys, probability))
    return batches


class Mailbox:
    """In the place of a PriorityUpdater: keeps what it is given, and looks at none of it."""

    def __init__(self):
        self.got: list[tuple[np.ndarray, Any]] = []
        self.closed = False

    def put(self, errors):
        self.got.append((errors.keys, errors.errors))

    def settle(self):
        pass

    def close(self):
        self.closed = True

    def pairs(self) -> dict[int, float]:
        return {
            int(key): float(value)
            for keys, values in self.got
            for key, value in zip(keys, np.asarray(values).ravel(), strict=True)
        }
