"""What every batch of environments has to hold, whatever its backend."""

from collections.abc import Callable

import dm_env
import numpy as np
import pytest
import tree
from dm_env import specs

from acme_ext.envs.base import BatchedEnvironment
from acme_ext.types import FIRST, LAST

Rollout = Callable[..., list[dm_env.TimeStep]]


def random_actions(spec: specs.Array, batch: int, rng: np.random.Generator) -> np.ndarray:
    """Uniform actions [batch, ...] of a bounded spec."""
    assert isinstance(spec, specs.BoundedArray)
    if np.issubdtype(spec.dtype, np.integer):
        return rng.integers(spec.minimum, spec.maximum + 1, (batch, *spec.shape)).astype(spec.dtype)
    return rng.uniform(spec.minimum, spec.maximum, (batch, *spec.shape)).astype(spec.dtype)


@pytest.fixture
def rollout() -> Rollout:
    """Steps a batch by random actions, checks each time step against the contract and the specs, and returns copies."""

    def run(
        environment: BatchedEnvironment,
        steps: int,
        actions: Callable[[int], np.ndarray] | None = None,
        seed: int = 0,
    ) -> list[dm_env.TimeStep]:
        rng = np.random.default_rng(seed)
        n = environment.num_envs
        timesteps: list[dm_env.TimeStep] = []
        for t in range(steps + 1):
            if t == 0:
                timestep = environment.reset()
            else:
                chosen = actions(t - 1) if actions else random_actions(environment.action_spec(), n, rng)
                timestep = environment.step(chosen)
            check(environment, timestep, timesteps[-1] if timesteps else None)
            timesteps.append(tree.map_structure(np.copy, timestep))
        return timesteps

    return run


def check(environment: BatchedEnvironment, timestep: dm_env.TimeStep, before: dm_env.TimeStep | None) -> None:
    n = environment.num_envs
    step_type, reward, discount, observation = timestep
    assert (step_type.dtype, reward.dtype, discount.dtype) == (np.uint8, np.float32, np.float32)
    assert step_type.shape == reward.shape == discount.shape == (n,)

    began = np.ones(n, bool) if before is None else before.step_type == LAST
    np.testing.assert_array_equal(step_type == FIRST, began)
    assert not reward[began].any()
    assert (discount[began] == 1).all()

    tree.assert_same_structure(environment.observation_spec(), observation)
    for spec, values in zip(tree.flatten(environment.observation_spec()), tree.flatten(observation), strict=True):
        assert len(values) == n
        for value in values:
            spec.validate(value)
    for row in range(n):
        environment.reward_spec().validate(reward[row])
        environment.discount_spec().validate(discount[row])


@pytest.fixture
def same() -> Callable[[list[dm_env.TimeStep], list[dm_env.TimeStep]], bool]:
    """Whether two rollouts agree to the last digit."""

    def compare(a: list[dm_env.TimeStep], b: list[dm_env.TimeStep]) -> bool:
        return len(a) == len(b) and all(
            np.array_equal(x, y) for x, y in zip(tree.flatten(a), tree.flatten(b), strict=True)
        )

    return compare
