"""What PPO's config refuses."""

import pytest

from acme_ext.agents.ppo.config import PPOConfig
from acme_ext.errors import UsageError


def test_a_number_of_minibatches_that_does_not_divide_the_batch_is_refused():
    with pytest.raises(UsageError, match=r"^num_minibatches is 3"):
        PPOConfig(num_minibatches=3)


def test_none_switches_the_bound_on_the_gradient_off():
    assert PPOConfig(max_gradient_norm=None).max_gradient_norm is None
