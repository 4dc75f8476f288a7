import itertools
import subprocess
import sys

import numpy as np
import pytest
from dm_env import specs

from acme_ext import envs
from acme_ext.envs.envpool import EnvPool, EnvPoolEnvironment
from acme_ext.types import FIRST, LAST, MID


@pytest.mark.parametrize("name", ["CartPole-v1", "Pong-v5", "CheetahRun-v1", "HalfCheetah-v4"])
def test_a_time_limit_truncates(name, rollout):
    with envs.make(f"envpool:{name}", num_envs=3, seed=1, max_episode_steps=6) as environment:
        assert isinstance(environment, EnvPoolEnvironment)
        timesteps = rollout(environment, 13)
    kinds = [FIRST] + [MID] * 5 + [LAST]
    np.testing.assert_array_equal([t.step_type for t in timesteps], np.array([kinds + kinds] * 3).T)
    np.testing.assert_array_equal([t.discount for t in timesteps], np.ones((14, 3)))


def test_a_fall_terminates(rollout):
    with envs.make("envpool:CartPole-v1", num_envs=3, seed=1) as environment:
        timesteps = rollout(environment, 40, actions=lambda t: np.zeros(3, np.int32))
    ends = [t.discount[row] for t in timesteps for row in np.flatnonzero(t.step_type == LAST)]
    assert len(ends) >= 6
    assert set(ends) == {0.0}


def test_lost_lives_in_training_and_evaluation(rollout):
    def discounts(**kwargs):
        # Serve whenever there is no ball and never move: the five lives are gone after some 120 steps.
        with envs.make("envpool:Breakout-v5", seed=1, **kwargs) as environment:
            timesteps = rollout(environment, 250, actions=lambda t: np.array([t % 2]))
        end = next(t for t, timestep in enumerate(timesteps) if timestep.step_type[0] == LAST)
        return [float(t.discount[0]) for t in timesteps[: end + 1]]

    training = discounts()
    assert training.count(0.0) == 5
    assert training[-1] == 0.0
    for whole in (discounts(zero_discount_on_life_loss=False), discounts(evaluation=True, episodic_life=True)):
        assert whole == [1.0] * (len(whole) - 1) + [0.0]


def test_pictures_have_their_channels_last(rollout):
    with envs.make("envpool:Pong-v5", num_envs=2) as environment:
        timesteps = rollout(environment, 6)
        assert environment.observation_spec() == specs.BoundedArray((84, 84, 4), np.uint8, 0, 255)
    # The newest picture is the last channel, and moves down the stack.
    for before, after in itertools.pairwise(timesteps):
        np.testing.assert_array_equal(before.observation[..., 1:], after.observation[..., :-1])
    assert envs.make_single("envpool:CarRacing-v2").observation_spec().shape == (96, 96, 3)


@pytest.mark.parametrize(("name", "counts"), [("FrozenLake-v1", [16]), ("Blackjack-v1", [32, 32, 32])])
def test_whole_numbers_are_one_hot(rollout, name, counts):
    with envs.make(f"envpool:{name}", num_envs=2) as environment:
        timesteps = rollout(environment, 20)
        assert environment.observation_spec() == specs.BoundedArray((sum(counts),), np.bool_, False, True)
    for timestep in timesteps:
        for part in np.split(timestep.observation, np.cumsum(counts)[:-1], axis=1):
            np.testing.assert_array_equal(part.sum(axis=1), 1)
    if name == "FrozenLake-v1":
        places = [timestep.observation[0].argmax() for timestep in timesteps]
        assert places[0] == 0
        assert len(set(places)) > 2


def test_a_dict_of_floats_is_one_vector_unless_it_is_kept(rollout):
    with envs.make("envpool:FishSwim-v1", num_envs=2, seed=3) as environment:
        flat = rollout(environment, 3)
    with envs.make("envpool:FishSwim-v1", num_envs=2, seed=3, flatten=False) as environment:
        nest = rollout(environment, 3)
    assert nest[0].observation["upright"].shape == (2,)
    for a, b in zip(flat, nest, strict=True):
        parts = [value.reshape(2, -1) for value in b.observation.values()]
        np.testing.assert_array_equal(a.observation, np.concatenate(parts, axis=1))


def test_options_reach_the_pool():
    with envs.make("envpool:Pong-v5", num_envs=2, stack_num=2, full_action_space=True) as environment:
        assert environment.observation_spec().shape == (84, 84, 2)
        assert environment.action_spec().num_values == 18


def test_a_pool_can_be_closed_twice_as_a_run_that_resumed_does():
    environment = envs.make("envpool:CartPole-v1", num_envs=2)
    environment.close()
    environment.close()


def test_doom_is_left_out():
    names = EnvPool().names()
    assert "Pong-v5" in names
    assert "Deathmatch-v1" not in names


def test_gyms_notice_is_not_shown():
    code = "from acme_ext import envs; envs.make('envpool:CartPole-v1', num_envs=2).reset()"
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout + result.stderr == ""
