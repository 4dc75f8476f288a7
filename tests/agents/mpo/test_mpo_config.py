import dataclasses

import pytest

from acme_ext.agents.mpo.config import SUITE, DMPOConfig, MPOConfig
from acme_ext.errors import UsageError


@pytest.mark.parametrize("config", [MPOConfig, DMPOConfig])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon_penalty", -1e-3),
        ("epsilon_mean", 0.0),
        ("epsilon_stddev", float("nan")),
        ("init_temperature", 0.0),
        ("init_alpha_mean", -1.0),
        ("init_alpha_stddev", 0.0),
        ("init_stddev", 0.0),
        ("min_stddev", 0.0),
        ("num_samples", 1),
        ("policy_learning_rate", 0.0),
        ("critic_learning_rate", -1.0),
        ("dual_learning_rate", 0.0),
        ("max_gradient_norm", 0.0),
        ("target_period", 0),
        ("target_rate", 1.5),
        ("policy_sizes", ()),
        ("critic_sizes", (64, 0)),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(config, field, value):
    with pytest.raises(UsageError, match=f"^{field} is .*must"):
        config(**{field: value})


@pytest.mark.parametrize("changed", [{"v_min": 150.0}, {"v_max": -200.0}, {"num_atoms": 1}])
def test_the_support_is_checked(changed):
    with pytest.raises(UsageError, match="must be"):
        DMPOConfig(**changed)


def test_the_control_suites_support_holds_all_its_returns():
    # Rewards in [0, 1] for ever.
    assert SUITE.v_min == 0
    assert pytest.approx(1 / (1 - SUITE.discount)) == SUITE.v_max


def test_the_penalty_and_the_gradients_bound_may_be_left_out():
    config = dataclasses.replace(MPOConfig(), epsilon_penalty=None, max_gradient_norm=None)
    assert config.epsilon_penalty is None
