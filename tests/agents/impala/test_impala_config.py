"""What IMPALA's config refuses."""

import pytest

from acme_ext.agents.impala.config import IMPALAConfig
from acme_ext.errors import UsageError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("core_size", 0),
        ("image_features", 0),
        ("batch_size", 0),
        ("max_rho", 0.5),
        ("max_c", 0.0),
        ("value_coef", -1.0),
        ("entropy_coef", float("nan")),
        ("learning_rate", 0.0),
        ("learning_rate_decay_steps", 0),
        ("rmsprop_decay", 1.5),
        ("rmsprop_epsilon", 0.0),
        ("max_gradient_norm", -1.0),
        ("hidden_sizes", (64, 0)),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(field, value):
    with pytest.raises(UsageError, match=f"^{field} is .*(must|needs)"):
        IMPALAConfig(**{field: value})


def test_none_switches_the_bound_off():
    assert IMPALAConfig(max_gradient_norm=None).max_gradient_norm is None
