"""The benchmark of Agent57's bandits in a training, with budgets too small to learn anything."""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.learning import bandit_choices_trained
from benchmarks.learning.bandit_choices_trained import LIMIT, Fashion, Played


def test_what_is_paid_for_turns_with_the_environments_age_and_not_with_its_episodes():
    environment = Fashion(part=2 * LIMIT)
    state, _ = environment.reset(jax.random.key(0))
    step, returns = jax.jit(environment.step), []
    for _ in range(5):
        for _ in range(LIMIT):
            state, timestep = step(state, jnp.int32(0))  # up, to the wall
        assert timestep.last()
        assert timestep.discount == 1
        returns.append(float(timestep.reward))
        state, timestep = step(state, jnp.int32(0))
        assert timestep.first()
    assert np.all(np.array(returns)[[0, 1, 4]] <= 5 / LIMIT)
    assert np.all(np.array(returns)[2:4] >= 1 - 5 / LIMIT)


def test_a_row_says_who_is_best_and_who_plays():
    arm = np.array([[1, 1], [0, 3], [2, 2], [2, 0]] * 3)
    played = Played(arm, np.where(arm == 2, 1.0, 0.25), np.full(len(arm), 2))
    options = argparse.Namespace(episodes=12, envs=2)
    lines = bandit_choices_trained.page({7: played}, options).splitlines()
    rows = [line for line in lines if line.startswith("| 7 |")]
    assert len(rows) == bandit_choices_trained.PARTS
    assert rows[0] == "| 7 | 1 | 2 | 0.25, nan, 1.00, nan | 25%, 0%, 75%, 0% | 2 | 100% |"


@pytest.mark.release
def test_a_training_is_run_and_written(tmp_path):
    pages = tmp_path / "pages"
    arguments = ["--episodes", "6", "--envs", "2", "--seeds", "3", "--out", str(pages)]
    assert bandit_choices_trained.main(arguments) == 0
    rows = [line for line in (pages / "bandit-choices-trained.md").read_text().splitlines() if line.startswith("| 3 |")]
    assert len(rows) == bandit_choices_trained.PARTS
    assert (pages / "bandit-choices-trained.png").read_bytes().startswith(b"\x89PNG")
