"""What DQN's config refuses."""

import dataclasses

from acme_ext.agents.dqn.config import ATARI


def test_none_switches_a_bound_off():
    config = dataclasses.replace(ATARI, max_abs_reward=None, max_gradient_norm=None, huber_delta=None)
    assert config.max_gradient_norm is None
