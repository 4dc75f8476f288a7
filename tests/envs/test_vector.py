from typing import Any, NamedTuple

import dm_env
import numpy as np
import pytest
from dm_env import specs
from hypothesis import given, settings
from hypothesis import strategies as st

from acme_ext.envs.vector import VectorEnvironment
from acme_ext.errors import RunError, UsageError
from acme_ext.types import FIRST, LAST, MID


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
    with pytest.raises(RunError, match=r"begins an episode in every step\(\)"):  # a run would never end
        batch.step(np.zeros(1, np.int32))


class Other(Toy):
    def action_spec(self):
        return specs.DiscreteArray(5)


class Flat(Toy):
    def observation_spec(self):
        return specs.Array((2,), np.float32)


class Seeing(Toy):
    def reset(self):
        timestep = super().reset()
        return timestep._replace(observation={**timestep.observation, "z": 0.0})


class TwoHanded(Toy):
    def action_spec(self):
        return {"left": specs.DiscreteArray(2), "right": specs.DiscreteArray(2)}


class TwoGoals(Toy):
    def reward_spec(self):
        return specs.Array((2,), np.float32)


def test_bad_environments_are_told():
    with pytest.raises(RunError, match=r"another structure than its spec's: a mapping with 'x', 'y', and not a single"):
        VectorEnvironment([Flat(0)]).reset()
    with pytest.raises(RunError, match=r"its spec's: a mapping with 'x', 'y', 'z', and not a mapping with 'x', 'y'"):
        VectorEnvironment([Seeing(0)]).reset()
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
    with pytest.raises(UsageError, match=r"must return a dm_env.Environment, not a dict; .*GymEnvironment makes one"):
        VectorEnvironment([{}])  # type: ignore[list-item]


_NAN = float("nan")
_X = np.zeros((2, 3))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"reward": _NAN},
            r"a reward of nan \(in environment 1 of 2\); its spec says float32 of shape \(\), which must be ",
        ),
        ({"reward": float("inf")}, "a reward of inf"),
        ({"reward": None}, "a reward of None; its spec says float32"),
        ({"reward": np.zeros(2)}, r"a reward of array\(\[0., 0.\]\); its spec says float32"),
        ({"reward": "much"}, "a reward of 'much'"),
        ({"discount": _NAN}, "a discount of nan"),
        ({"discount": 2.0}, r"a discount of 2.0; its spec says float32 of shape \(\), in \[0, 1\]"),
        ({"discount": -0.1}, r"a discount of -0.1"),
        ({"discount": "all"}, "a discount of 'all'"),
        (
            {"x": np.full((2, 3), _NAN)},
            r"the observation 'x' of nan at \[0, 0\] \(in environment 1 of 2\); its spec says ",
        ),
        ({"x": np.array([[0.0] * 3, [0.0, 0.0, np.inf]])}, r"the observation 'x' of inf at \[1, 2\]"),
        ({"x": None}, r"the observation 'x' of None; its spec says float32 of shape \(2, 3\)"),
        ({"x": np.zeros((1, 3))}, r"the observation 'x' of shape \(1, 3\) and type float64; its spec says"),
        ({"x": np.zeros(())}, "the observation 'x' of array"),
        ({"x": [[0.0], [0.0, 1.0]]}, "the observation 'x' of "),
        ({"x": [["a", "b", "c"]] * 2}, r"the observation 'x' of shape \(2, 3\) and type <U1"),
        ({"y": Pair(1, (_NAN,))}, r"the observation 'y/b/0' of nan \(in environment 1 of 2\)"),
        ({"y": None}, "an observation of another structure"),
        (
            {"observation": _X},
            "an observation of another structure than its spec's: a single array, and not a mapping with 'x', 'y'",
        ),
        (
            {"observation": {"x": _X}},
            "an observation of another structure than its spec's: a mapping with 'x', and not",
        ),
    ],
)
@pytest.mark.parametrize("at", ["first", "mid", "last"])
def test_what_is_not_as_the_specs_say_is_told_by_environment_and_field(change, told, at):
    class Wrong(Toy):
        def observation(self) -> Any:
            return change.get(
                "observation", {**self._observation(), **{k: change[k] for k in ("x", "y") if k in change}}
            )

        def reset(self):
            self._ended = False
            return dm_env.restart(self.observation() if at == "first" else self._observation())

        def step(self, action):
            end = dm_env.StepType.MID if at == "mid" else dm_env.StepType.LAST
            return dm_env.TimeStep(end, change.get("reward", 0.0), change.get("discount", 1.0), self.observation())

    batch = VectorEnvironment([Toy(0), Wrong(1)])
    batch.name = "gym:wrong:Wrong-v0"

    def run() -> None:
        batch.reset()
        batch.step(np.zeros(2, np.int32))

    if at == "first" and change.keys() & {"reward", "discount"}:
        at = "last"
    with pytest.raises(RunError, match=f"^gym:wrong:Wrong-v0 delivered {told}"):
        run()


def test_large_numbers_are_finite():
    class Far(Toy):
        def _observation(self):
            return {**super()._observation(), "x": np.full((2, 3), 3e38)}

    batch = VectorEnvironment([Far(0)])
    np.testing.assert_array_equal(batch.reset().observation["x"], np.full((1, 2, 3), 3e38, np.float32))


def test_each_environment_is_closed_once_even_if_another_one_can_not_be():
    """A resumed run closes its first batch at once and again at its end."""
    closed = []

    class Closing(Toy):
        def close(self):
            closed.append(self)
            if self is batch.environments[1]:
                raise OSError("gone already")

    batch = VectorEnvironment([Closing(seed) for seed in range(3)])
    with pytest.raises(OSError, match="gone already"):
        batch.close()
    batch.close()
    assert sorted(map(batch.environments.index, closed)) == [0, 1, 2]
