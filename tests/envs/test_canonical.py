import dm_env
import numpy as np
import pytest
from dm_env import specs

from acme_ext import envs
from acme_ext.envs.canonical import CanonicalActions
from acme_ext.envs.vector import VectorEnvironment


class Dials(dm_env.Environment):
    """Keeps what it is given."""

    def __init__(self, spec):
        self.spec, self.taken = spec, []

    def reset(self):
        return dm_env.restart(np.zeros(1, np.float32))

    def step(self, action):
        self.taken.append(np.array(action))
        return dm_env.transition(0.0, np.zeros(1, np.float32))

    def observation_spec(self):
        return specs.Array((1,), np.float32)

    def action_spec(self):
        return self.spec


def batch(spec, count=2):
    return VectorEnvironment([Dials(spec) for _ in range(count)])


def test_actions_get_the_environments_bounds_and_shape():
    spec = specs.BoundedArray((2, 1), np.float32, [[-2.0], [0.0]], [[3.0], [1.0]])
    environment = envs.canonical_actions(batch(spec))
    assert environment.action_spec() == specs.BoundedArray((2,), np.float32, -1.0, 1.0, "action")
    environment.reset()
    environment.step(np.array([[-1.0, 1.0], [0.2, -0.5]], np.float32))
    environment.step(np.array([[-7.0, 7.0], [1.0, 0.0]], np.float32))
    first, second = (inner.taken for inner in environment.environments)
    np.testing.assert_allclose(first, [[[-2], [1]], [[-2], [1]]], rtol=1e-6)
    np.testing.assert_allclose(second, [[[1.0], [0.25]], [[3], [0.5]]], rtol=1e-6)
    assert first[0].shape == (2, 1)
    assert first[0].dtype == np.float32


@pytest.mark.parametrize("bounds", [(-1e38, 1e38), (0.1, 0.1 + 1e-6), (-3.3333333, 7.7777777)])
def test_rounding_never_leaves_the_bounds(bounds):
    environment = envs.canonical_actions(batch(specs.BoundedArray((), np.float32, *bounds), 200))
    environment.reset()
    for edge in (-1.0, 1.0):
        environment.step(np.full((200, 1), edge, np.float32))
    low, high = (np.float32(bound) for bound in bounds)
    for inner in environment.environments:
        assert low <= inner.taken[0] <= inner.taken[1] <= high
        np.testing.assert_allclose(inner.taken, [low, high], rtol=1e-6)


@pytest.mark.parametrize(
    "spec",
    [
        specs.DiscreteArray(3),
        specs.Array((2,), np.float32),
        specs.BoundedArray((2,), np.int32, 0, 3),
        specs.BoundedArray((2,), np.float32, -1, [1, np.inf]),
        specs.BoundedArray((2,), np.float32, 1, [1, 2]),
    ],
)
def test_other_actions_are_left_as_they_are(spec):
    environment = batch(spec)
    assert envs.canonical_actions(environment) is environment
    with pytest.raises(ValueError, match="only bounded continuous actions"):
        CanonicalActions(environment)


def test_everything_else_is_the_environments():
    inner = envs.make("gym:Pendulum-v1", num_envs=3)
    environment = envs.canonical_actions(inner)
    assert environment.num_envs == 3
    assert environment.observation_spec() == inner.observation_spec()
    assert environment.reward_spec() == inner.reward_spec()
    assert environment.discount_spec() == inner.discount_spec()
    assert environment.reset().observation.shape == (3, 3)
    environment.close()
