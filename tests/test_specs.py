import acme.specs
import numpy as np
import pytest
from dm_env import specs

from acme_ext.errors import UsageError
from acme_ext.specs import num_actions, zeros


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
