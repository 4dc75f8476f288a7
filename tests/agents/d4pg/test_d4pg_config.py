import dataclasses

import pytest

from acme_ext.agents.d4pg.config import SUITE, ApexDPGConfig, D4PGConfig
from acme_ext.errors import UsageError


@pytest.mark.parametrize("config", [D4PGConfig, ApexDPGConfig])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("policy_learning_rate", 0.0),
        ("critic_learning_rate", float("nan")),
        ("max_gradient_norm", 0.0),
        ("max_policy_gradient", -1.0),
        ("target_period", 0),
        ("target_rate", 1.5),
        ("noise_stddev", -0.3),
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
        D4PGConfig(**changed)


def test_the_control_suites_support_holds_all_its_returns():
    # Rewards in [0, 1] for ever.
    assert SUITE.v_min == 0
    assert pytest.approx(1 / (1 - SUITE.discount)) == SUITE.v_max


def test_bounds_may_be_left_out():
    config = dataclasses.replace(ApexDPGConfig(), max_policy_gradient=None, max_gradient_norm=None)
    assert config.max_policy_gradient is None
