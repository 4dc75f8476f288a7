import acme.specs
import numpy as np
import pytest
from dm_env import specs

from acme_ext.errors import UsageError
from acme_ext.specs import action_size, is_discrete, num_actions, zeros


def spec_of(actions):
    return acme.specs.EnvironmentSpec(
        observations=specs.Array((3,), np.float32),
        actions=actions,
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
    )


def test_zeros():
    spec = {"image": specs.BoundedArray((4, 4), np.uint8, 0, 255), "place": (specs.Array((), np.float32),)}
    nest = zeros(spec, 5)
    assert nest["image"].shape == (5, 4, 4)
    assert nest["image"].dtype == np.uint8
    assert nest["place"][0].shape == (5,)
    assert nest["place"][0].dtype == np.float32
    assert not nest["image"].any()


def test_number_of_actions():
    assert num_actions(spec_of(specs.DiscreteArray(7, np.int32)), "DQN") == 7


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        (specs.BoundedArray((2,), np.float32, -1, 1), r"BoundedArray of shape \(2,\)"),
        (specs.BoundedArray((), np.int32, 0, 3), r"BoundedArray of shape \(\)"),
        ({"left": specs.DiscreteArray(2)}, r"dict of shape \?"),
    ],
)
def test_other_actions_are_refused_by_the_agents_name(actions, said):
    with pytest.raises(UsageError, match=f"SomeAgent needs an environment with one discrete action; .* {said}"):
        num_actions(spec_of(actions), "SomeAgent")


def test_the_size_of_an_action():
    assert action_size(spec_of(specs.BoundedArray((2,), np.float32, -1, 1)), "SAC") == 2
    assert not is_discrete(spec_of(specs.BoundedArray((2,), np.float32, -1, 1)))
    assert is_discrete(spec_of(specs.DiscreteArray(2)))


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        (specs.DiscreteArray(4), r"actions are DiscreteArray of shape \(\) and type int32"),
        (specs.BoundedArray((2,), np.int32, 0, 3), r"actions are BoundedArray of shape \(2,\) and type int32"),
        ({"left": specs.BoundedArray((2,), np.float32, 0, 3)}, r"actions are dict of shape \? and type \?"),
        (specs.Array((2,), np.float32), "action has no finite bounds"),
        (specs.BoundedArray((2,), np.float32, -1, [1, np.inf]), "action has no finite bounds"),
        (specs.BoundedArray((1,), np.float64, -1e300, 1e300), "action has no finite bounds"),
        (specs.BoundedArray((2,), np.float32, 1, [1, 2]), "action has nothing between its bounds"),
        (specs.BoundedArray((0,), np.float32, 0, 1), "action has nothing between its bounds"),
    ],
)
def test_actions_that_are_no_bounded_vector_are_refused_by_the_agents_name(actions, said):
    with pytest.raises(UsageError, match=f"SomeAgent needs an .* one continuous action that is bounded; .*{said}"):
        action_size(spec_of(actions), "SomeAgent")


@pytest.mark.parametrize(
    "actions", [specs.BoundedArray((2,), np.float32, -2, 3), specs.BoundedArray((), np.float32, -1, 1)]
)
def test_actions_in_other_units_are_refused_with_what_would_be_right(actions):
    with pytest.raises(UsageError, match=r"SomeAgent acts by vectors in \[-1, 1\], .* `envs.canonical_actions`"):
        action_size(spec_of(actions), "SomeAgent")
