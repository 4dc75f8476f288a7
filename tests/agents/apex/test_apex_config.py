"""What Ape-X's config refuses, and the published numbers."""

import dataclasses

from acme_ext.agents.apex.config import ATARI, MINATAR, ApexConfig
from acme_ext.agents.dqn import config as dqn


def test_the_exponent_of_importance_stays():
    for config in (ApexConfig(), ATARI, MINATAR):
        assert config.replay.importance_exponent == config.replay.importance_exponent_end == 0.4
        assert config.replay.priority_exponent == 0.6


def test_on_minatar_it_has_dqns_numbers_and_its_own_parts():
    assert (MINATAR.double, MINATAR.dueling, MINATAR.replay.prioritized, MINATAR.replay.n_step) == (True, True, True, 3)
    own = {"double", "dueling", "replay"}
    for field in dataclasses.fields(dqn.QLearningConfig):
        if field.name not in own:
            assert getattr(MINATAR, field.name) == getattr(dqn.MINATAR, field.name), field.name
    for field in ("samples_per_insert", "min_size", "max_size"):
        assert getattr(MINATAR.replay, field) == getattr(dqn.MINATAR.replay, field), field
