"""What PPO's config refuses."""

import pytest

from acme_ext.agents.ppo.config import PPOConfig
from acme_ext.errors import UsageError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("clip", 0.0),
        ("gae_lambda", 1.1),
        ("num_epochs", 0),
        ("num_minibatches", 0),
        ("num_minibatches", 3),
        ("batch_size", 0),
        ("learning_rate", -1e-3),
        ("max_gradient_norm", 0.0),
        ("entropy_coef", -0.1),
        ("value_coef", float("nan")),
        ("init_stddev", 0.0),
        ("value_horizon", 0.0),
        ("max_abs_observation", -1.0),
        ("adam_epsilon", 0.0),
        ("hidden_sizes", (64, 0)),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(field, value):
    with pytest.raises(UsageError, match=f"^{field} is .*(must|needs)"):
        PPOConfig(**{field: value})


def test_none_switches_the_bound_on_the_gradient_off():
    assert PPOConfig(max_gradient_norm=None).max_gradient_norm is None
