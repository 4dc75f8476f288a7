"""Tests of the loop without a toolkit."""

import numpy as np
import pytest

from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.builders.dqn import DQN
from acme_ext.replay.config import TransitionConfig
from benchmarks.speed.plain_dqn import PlainLoop


@pytest.mark.release
def test_it_makes_the_updates_that_the_steps_pay_for_and_keeps_what_happened():
    config = DQNConfig(
        batch_size=8,
        sgd_steps_per_call=2,
        replay=TransitionConfig(min_size=40, max_size=150, samples_per_insert=2.0),
    )
    loop = PlainLoop(DQN(config), "gym:CartPole-v1", 3)
    while loop.steps < 100:
        loop.step()
    owed = (loop.steps - 40) * 2.0 / 8
    assert owed - 2 < loop.learner_steps <= owed
    ring = loop._ring
    kept = slice(0, loop.steps)
    assert np.all(ring.reward[kept] == 1)
    assert set(np.unique(ring.discount[kept])) == {0.0, np.float32(0.99)}
    # Three environments in turn: a transition begins where the one before of its environment ended, or a new episode.
    moved = ring.next_observation[kept] - ring.observation[kept]
    assert np.abs(moved).max() < 1.0
    assert not ring.reward[loop.steps :].any()
    loop.close()
