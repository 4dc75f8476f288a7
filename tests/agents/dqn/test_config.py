"""What DQN's config refuses."""

import dataclasses

import pytest

from acme_ext.agents.dqn.config import ATARI, DQNConfig
from acme_ext.errors import UsageError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target_period", 0),
        ("target_rate", 0.0),
        ("target_rate", 1.5),
        ("learning_rate", -1e-3),
        ("learning_rate", float("nan")),
        ("max_gradient_norm", 0.0),
        ("huber_delta", 0.0),
        ("epsilon_start", 1.5),
        ("evaluation_epsilon", -0.1),
        ("rmsprop_epsilon", 0.0),
        ("rmsprop_decay", 1.5),
        ("hidden_sizes", (64, 0)),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(field, value):
    with pytest.raises(UsageError, match=f"^{field} is .*must|^{field} is .*needs"):
        DQNConfig(**{field: value})


def test_none_switches_a_bound_off():
    config = dataclasses.replace(ATARI, max_abs_reward=None, max_gradient_norm=None, huber_delta=None)
    assert config.max_gradient_norm is None
