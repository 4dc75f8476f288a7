"""What R2D2's config refuses."""

import dataclasses

from acme_ext.agents.r2d2.config import ATARI


def test_none_switches_a_bound_and_the_rescaling_off():
    config = dataclasses.replace(ATARI, max_gradient_norm=None, rescaling_epsilon=None)
    assert config.rescaling_epsilon is None
