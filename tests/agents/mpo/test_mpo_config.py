import dataclasses

import pytest

from acme_ext.agents.mpo.config import SUITE, DMPOConfig, MPOConfig
from acme_ext.errors import UsageError


@pytest.mark.parametrize("config", [MPOConfig, DMPOConfig])
def test_one_sampled_action_is_too_few(config):
    with pytest.raises(UsageError, match=r"^num_samples is 1"):
        config(num_samples=1)


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
