"""What R2D2's config refuses."""

import dataclasses

import pytest

from acme_ext.agents.r2d2.config import ATARI, R2D2Config
from acme_ext.errors import UsageError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_step", 0),
        ("core_size", 0),
        ("target_period", 0),
        ("variable_period", 0),
        ("discount", 1.5),
        ("learning_rate", 0.0),
        ("rescaling_epsilon", 0.0),
        ("max_gradient_norm", -1.0),
        ("priority_max_share", 1.1),
        ("epsilon_base", -0.1),
        ("epsilon_steepness", -1.0),
        ("hidden_sizes", ()),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(field, value):
    with pytest.raises(UsageError, match=f"^{field} is "):
        R2D2Config(**{field: value})


def test_none_switches_a_bound_and_the_rescaling_off():
    config = dataclasses.replace(ATARI, max_gradient_norm=None, rescaling_epsilon=None)
    assert config.rescaling_epsilon is None
