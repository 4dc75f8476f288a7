"""Board games as pure functions, beside the batch of games that the other ways of running have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext import envs
from acme_ext.errors import UsageError

FIRST, LAST = 0, 2


def random_legal(rng, mask):
    return np.array([rng.choice(np.flatnonzero(row)) for row in mask], np.int32)


def functional(game, **options):
    environment = envs.make_functional(f"board:{game}", **options)
    assert environment is not None
    return jax.jit(jax.vmap(environment.reset)), jax.jit(jax.vmap(environment.step)), environment


@pytest.mark.parametrize("game", ["tic_tac_toe", pytest.param("connect_four", marks=pytest.mark.release)])
def test_every_step_of_self_play_is_that_of_the_batch(game):
    options = {"self_play": True, "game_state": True}
    reset, step, environment = functional(game, **options)
    state, timestep = reset(jax.random.split(jax.random.key(0), 3))
    rng, ends = np.random.default_rng(1), 0
    with envs.make(f"board:{game}", num_envs=3, seed=5, **options) as batch:
        expected = batch.reset()
        specs = batch.observation_spec()
        assert repr(specs) == repr(environment.observation_spec())
        assert batch.action_spec() == environment.action_spec()
        began = np.zeros(3, np.int32)
        for _ in range(60):
            first = expected.step_type == FIRST
            # Who begins is drawn; the board is seen by the one who moves.
            began = np.where(first, timestep.observation["player"] ^ expected.observation["player"], began)
            for name in ("board", "action_mask"):
                np.testing.assert_array_equal(timestep.observation[name], expected.observation[name])
            np.testing.assert_array_equal(timestep.observation["player"], expected.observation["player"] ^ began)
            for name in ("step_type", "reward", "discount"):
                np.testing.assert_array_equal(getattr(timestep, name), getattr(expected, name))
            ends += int((expected.step_type == LAST).sum())
            actions = random_legal(rng, expected.observation["action_mask"])
            expected = batch.step(actions)
            state, timestep = step(state, actions)
    assert ends > 3


@pytest.mark.slow
def test_an_opponent_answers_and_the_reward_is_the_agents():
    reset, step, _ = functional("tic_tac_toe", self_play=True, evaluation=True)
    state, timestep = reset(jax.random.split(jax.random.key(2), 64))
    rng, rewards = np.random.default_rng(0), {True: [], False: []}
    begins = np.asarray(timestep.observation["board"]).any(axis=(1, 2, 3))
    assert 16 < begins.sum() < 48, "the side is drawn for every game"
    for _ in range(40):
        board, going = np.asarray(timestep.observation["board"]), np.asarray(timestep.step_type) != LAST
        mine, theirs = board[..., 0].sum(axis=(1, 2)), board[..., 1].sum(axis=(1, 2))
        first = np.asarray(timestep.step_type) == FIRST
        begins = np.where(first, theirs == 0, begins)
        np.testing.assert_array_equal(mine[going], (theirs - ~begins)[going])
        for began, reward in zip(begins[~going], np.asarray(timestep.reward)[~going], strict=True):
            rewards[bool(began)].append(float(reward))
        assert not np.asarray(timestep.reward)[going].any()
        state, timestep = step(state, random_legal(rng, timestep.observation["action_mask"]))
    assert set(rewards[True]) == set(rewards[False]) == {-1.0, 0.0, 1.0}
    # Who begins wins 58% of random games, and loses 29%.
    assert 0.1 < np.mean(rewards[True]) < 0.5
    assert -0.5 < np.mean(rewards[False]) < -0.1


def test_a_game_that_is_over_begins_anew():
    reset, step, _ = functional("tic_tac_toe", self_play=True)
    state, timestep = reset(jax.random.split(jax.random.key(0), 1))
    for action in (0, 3, 1, 4, 2):  # the one who began has the first three
        state, timestep = step(state, jnp.array([action]))
    assert (int(timestep.step_type[0]), float(timestep.reward[0]), float(timestep.discount[0])) == (LAST, 1.0, 0.0)
    state, timestep = step(state, jnp.array([0]))
    assert int(timestep.step_type[0]) == FIRST
    assert not timestep.observation["board"].any()


def test_options_of_other_worlds_are_refused():
    with pytest.raises(UsageError, match="in a compiled run the opponent is 'random'"):
        envs.make_functional("board:tic_tac_toe", opponent="mcts:10")
    with pytest.raises(UsageError, match="no drawn openings"):
        envs.make_functional("board:tic_tac_toe", opening_moves=2)
