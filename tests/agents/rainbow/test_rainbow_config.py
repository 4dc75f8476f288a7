"""What Rainbow's config refuses."""

import pytest

from acme_ext.agents.rainbow.config import ATARI, MINATAR, RainbowConfig
from acme_ext.errors import UsageError


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"distribution": "c51"}, "^distribution is 'c51': it must be one of none, categorical, quantile, implicit"),
        ({"num_atoms": 1}, "^num_atoms is 1: it must be at least 2"),
        ({"v_min": 5.0, "v_max": 5.0}, "^v_min is 5.0 and v_max is 5.0: both must be finite, and v_min the smaller"),
        ({"v_max": float("nan")}, "^v_min is -100.0 and v_max is nan: both must be finite"),
        ({"num_quantiles": 0}, "^num_quantiles is 0: it must be at least 1"),
        ({"quantile_kappa": -1.0}, "^quantile_kappa is -1.0: it must not be negative"),
        ({"noisy_sigma": 0.0}, "^noisy_sigma is 0.0: it must be greater than 0"),
        ({"noise_period": 0}, "^noise_period is 0: it must be at least 1"),
        ({"noisy": False, "epsilon_start": 0.0, "epsilon_end": 0.0}, "^noisy is false, and .* are 0: nothing explores"),
        ({"hidden_sizes": ()}, "^hidden_sizes is empty: it must have"),
        ({"target_period": 0}, "^target_period is 0: it must be at least 1"),  # DQN's own
        ({"epsilon_end": 1.5}, "^epsilon_end is 1.5: it must lie in"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(fields, message):
    with pytest.raises(UsageError, match=message):
        RainbowConfig(**fields)


@pytest.mark.parametrize(("config", "n_step"), [(RainbowConfig(), 10), (ATARI, 3), (MINATAR, 3)])
def test_all_six_parts_are_there(config, n_step):
    assert config.double
    assert config.dueling
    assert config.replay.prioritized
    assert config.noisy
    assert (config.replay.n_step, config.distribution, config.replay.priority_exponent) == (n_step, "categorical", 0.5)


def test_the_default_support_encloses_all_returns_of_rewards_of_at_most_one():
    config = RainbowConfig()
    assert config.v_max == -config.v_min == pytest.approx(1 / (1 - config.discount))
