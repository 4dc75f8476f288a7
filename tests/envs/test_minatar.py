import sys

import numpy as np
import pytest

from acme_ext import envs
from acme_ext.envs.minatar import MinAtarEnvironment
from acme_ext.types import FIRST, LAST, MID

GAMES = {"asterix": 4, "breakout": 4, "freeway": 7, "seaquest": 10, "space_invaders": 6}  # with their channels


@pytest.mark.parametrize("game", GAMES)
def test_games_hold_the_contract(game, rollout):
    with envs.make(f"minatar:{game}", num_envs=2, seed=1) as environment:
        timesteps = rollout(environment, 60)
    observation = np.stack([t.observation for t in timesteps])
    assert observation.shape == (61, 2, 10, 10, GAMES[game])
    assert observation.dtype == np.bool_
    assert set(np.unique(observation)) == {False, True}


def test_the_families_names_are_the_games():
    from acme_ext.envs.minatar import MinAtar

    assert set(MinAtar().names()) == set(GAMES)


def test_the_drawing_libraries_are_not_imported():
    envs.make("minatar:breakout").reset()
    assert "minatar.environment" not in sys.modules


def test_the_time_limit_truncates_and_the_game_terminates(rollout):
    with envs.make("minatar:breakout", max_steps=3) as environment:
        timesteps = rollout(environment, 4)
    assert [t.step_type[0] for t in timesteps] == [FIRST, MID, MID, LAST, FIRST]
    assert timesteps[3].discount[0] == 1.0

    with envs.make("minatar:breakout", seed=0) as environment:
        timesteps = rollout(environment, 200)
    ends = [t.discount[0] for t in timesteps if t.step_type[0] == LAST]
    assert ends
    assert set(ends) == {0.0}


def paddle(timestep) -> int:
    return int(timestep.observation[9, :, 0].argmax())


def test_sticky_actions_repeat_the_last_one():
    stuck = MinAtarEnvironment("breakout", seed=0, sticky_action_prob=1.0)
    stuck.reset()
    assert [paddle(stuck.step(1)) for _ in range(3)] == [4, 4, 4]  # The first action of an episode is to do nothing.
    free = MinAtarEnvironment("breakout", seed=0, sticky_action_prob=0.0)
    free.reset()
    assert [paddle(free.step(1)) for _ in range(3)] == [3, 2, 1]


def test_the_minimal_action_set():
    environment = MinAtarEnvironment("breakout", seed=0, sticky_action_prob=0.0, minimal_action_set=True)
    assert environment.action_spec().num_values == 3
    environment.reset()
    assert paddle(environment.step(2)) == 5  # Nothing, left, right.
    assert envs.make_single("minatar:breakout").action_spec().num_values == 6


def test_ramping_can_be_switched_off():
    assert envs.make_single("minatar:asterix", difficulty_ramping=False)._game.ramping is False
    assert envs.make_single("minatar:asterix")._game.ramping is True
