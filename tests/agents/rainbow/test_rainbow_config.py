"""What Rainbow's config refuses."""

import pytest

from acme_ext.agents.rainbow.config import ATARI, MINATAR, RainbowConfig
from acme_ext.errors import UsageError


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"distribution": "c51"}, "distribution"),
        ({"num_atoms": 1}, "num_atoms"),
        ({"v_min": 5.0, "v_max": 5.0}, "v_min"),
        ({"v_max": float("nan")}, "v_min"),
        ({"noisy": False, "epsilon_start": 0.0, "epsilon_end": 0.0}, "noisy"),
        ({"hidden_sizes": ()}, "hidden_sizes"),
    ],
)
def test_a_support_without_two_finite_atoms_no_exploration_and_no_layers_are_refused(fields, field):
    with pytest.raises(UsageError, match=f"^{field} is "):
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
