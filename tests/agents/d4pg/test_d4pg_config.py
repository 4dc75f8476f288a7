import dataclasses

import pytest

from acme_ext.agents.d4pg.config import SUITE, ApexDPGConfig, D4PGConfig
from acme_ext.errors import UsageError


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
