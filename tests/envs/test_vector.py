from typing import Any, NamedTuple

import dm_env
import numpy as np
import pytest
from dm_env import specs
from hypothesis import given, settings
from hypothesis import strategies as st

from acme_ext.envs.base import FIRST, LAST, MID
from acme_ext.envs.vector import VectorEnvironment
from acme_ext.errors import UsageError


class Pair(NamedTuple):
    a: Any
    b: Any


class Toy(dm_env.Environment):
    """Episodes of random length that end either way, with a nest of double precision; counts what is asked of it."""

    def __init__(self, seed: int, restarts: bool = True):
        self._rng = np.random.default_rng(seed)
        self._restarts = restarts
        self._ended = True
        self.actions: list[Any] = []

    def _observation(self):
        return {"x": self._rng.normal(size=(2, 3)), "y": Pair(self._rng.integers(9), (np.float64(self._rng.random()),))}

    def reset(self):
        self._ended = False
        return dm_env.restart(self._observation())

    def step(self, action):
        if self._ended:
            if self._restarts:
                return self.reset()
            raise RuntimeError("The episode is over.")
        self.action_spec().validate(action)
        self.actions.append(int(action))
        reward = float(self._rng.normal()) + int(action)
        self._ended = self._rng.random() < 0.2
        if not self._ended:
            return dm_env.transition(reward, self._observation(), discount=float(self._rng.random() < 0.9))
        end = dm_env.termination if self._rng.random() < 0.5 else dm_env.truncation
        return end(reward, self._observation())

    def observation_spec(self):
        return {
            "x": specs.Array((2, 3), np.float64),
            "y": Pair(specs.DiscreteArray(9, np.int64), (specs.BoundedArray((), np.float64, 0.0, 1.0),)),
        }

    def action_spec(self):
        return specs.DiscreteArray(4, np.int64)


@settings(max_examples=20, deadline=None)
@given(seeds=st.lists(st.integers(0, 1000), min_size=1, max_size=5), restarts=st.booleans())
def test_equals_stepping_the_list(seeds, restarts):
    batch = VectorEnvironment([Toy(seed, restarts) for seed in seeds])
    alone = [Toy(seed) for seed in seeds]
    rng = np.random.default_rng(0)
    timestep, expected = batch.reset(), [environment.reset() for environment in alone]
    for _ in range(30):
        for row, one in enumerate(expected):
            assert timestep.step_type[row] == one.step_type
            assert timestep.reward[row] == np.float32(one.reward or 0.0)
            assert timestep.discount[row] == (1.0 if one.first() else one.discount)
            np.testing.assert_array_equal(timestep.observation["x"][row], one.observation["x"].astype(np.float32))
            assert timestep.observation["y"].a[row] == one.observation["y"].a
            assert timestep.observation["y"].b[0][row] == np.float32(one.observation["y"].b[0])
        actions = rng.integers(0, 4, len(seeds)).astype(np.int32)
        timestep = batch.step(actions)
        expected = [environment.step(action) for environment, action in zip(alone, actions.astype(int), strict=True)]
    assert [e.actions for e in batch.environments if isinstance(e, Toy)] == [e.actions for e in alone]


def test_delivers_single_precision_and_holds_the_contract(rollout):
    batch = VectorEnvironment([Toy(seed) for seed in range(4)])
    timesteps = rollout(batch, 60)
    assert isinstance(timesteps[0].observation["y"], Pair)
    assert timesteps[0].observation["x"].dtype == np.float32
    assert timesteps[0].observation["y"].a.dtype == np.int32
    assert batch.action_spec() == specs.DiscreteArray(4, np.int32)
    kinds = np.concatenate([t.step_type for t in timesteps])
    assert set(kinds) == {FIRST, MID, LAST}


def test_a_reset_in_the_middle_begins_every_row_again(rollout):
    batch = VectorEnvironment([Toy(seed) for seed in range(4)])
    rollout(batch, 7)
    rollout(batch, 7)


def test_an_environment_that_restarts_itself_is_first():
    class Restless(Toy):
        def step(self, action):
            return self.reset()

    batch = VectorEnvironment([Restless(0)])
    batch.reset()
    timestep = batch.step(np.zeros(1, np.int32))
    assert (timestep.step_type[0], timestep.reward[0], timestep.discount[0]) == (FIRST, 0.0, 1.0)


class Lying(Toy):
    def reset(self):
        self._ended = False
        return dm_env.restart({**self._observation(), "x": np.zeros((1, 3))})


class Other(Toy):
    def action_spec(self):
        return specs.DiscreteArray(5)


class Flat(Toy):
    def observation_spec(self):
        return specs.Array((2,), np.float32)


class TwoHanded(Toy):
    def action_spec(self):
        return {"left": specs.DiscreteArray(2), "right": specs.DiscreteArray(2)}


class TwoGoals(Toy):
    def reward_spec(self):
        return specs.Array((2,), np.float32)


def test_bad_environments_are_told():
    with pytest.raises(UsageError, match=r"observation x of shape \(1, 3\), but its spec says \(2, 3\)"):
        VectorEnvironment([Lying(0)]).reset()
    with pytest.raises(UsageError, match="another structure"):
        VectorEnvironment([Flat(0)]).reset()
    with pytest.raises(UsageError, match="equal observation and action specs"):
        VectorEnvironment([Toy(0), Other(1)])
    with pytest.raises(UsageError, match="equal observation and action specs"):
        VectorEnvironment([Toy(0), Flat(1)])
    with pytest.raises(UsageError, match="must be a single array, not a dict"):
        VectorEnvironment([TwoHanded(0)])
    with pytest.raises(UsageError, match="reward must be one number"):
        VectorEnvironment([TwoGoals(0)])
    with pytest.raises(ValueError, match="at least one"):
        VectorEnvironment([])
