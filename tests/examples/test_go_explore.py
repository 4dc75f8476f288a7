"""Go-Explore's archive on small tasks: it finds what random actions don't, and its ways lead there again."""

import functools

import go_explore
import numpy as np
import pytest

from acme_ext.envs.explore import Chain, KeyDoor

CHAIN = functools.partial(Chain, size=20, max_steps=200)
KEY_DOOR = functools.partial(KeyDoor, size=7, max_steps=100)


@pytest.mark.parametrize("make", [CHAIN, KEY_DOOR])
def test_a_way_is_found_and_leads_there_from_a_reset(make):
    actions, taken, archive = go_explore.go_explore(make, goal=1.0)
    assert taken < 50_000
    for way, rewards in ((actions, 1), *((cell.actions, 0) for cell in archive.values())):
        environment = make()
        timesteps = [environment.reset(), *map(environment.step, way)]
        assert sum(timestep.reward or 0 for timestep in timesteps) == rewards
        assert timesteps[-1].last() == bool(rewards)
        if not rewards:
            assert archive[go_explore.cell_of(timesteps[-1].observation)].actions == way
    # 20 places, or 7 x 7 cells without the wall and with the door, twice but for the start.
    assert len(archive) == 20 if make is CHAIN else len(archive) <= 2 * (7 * 6 + 1)
    assert go_explore.go_explore(make, goal=1.0)[:2] == (actions, taken)  # nothing but the seed is random


def test_random_actions_alone_find_no_way_through_the_chain():
    steps = go_explore.go_explore(CHAIN, goal=1.0)[1]
    assert go_explore.random_search(CHAIN, goal=1.0, most=2 * steps) is None
    assert go_explore.random_search(functools.partial(CHAIN, size=4), goal=1.0, most=2 * steps) is not None


def test_a_cell_keeps_the_best_way_and_what_is_seen_often_is_chosen_seldom():
    cell = go_explore.Cell(None, (0, 1), 1.0)
    assert cell.is_worse_than(2.0, (0, 1, 2))
    assert cell.is_worse_than(1.0, (0,))
    assert not cell.is_worse_than(1.0, (1, 1))
    assert (cell.weight, go_explore.Cell(None, (), 0.0, seen=3).weight) == (1, 0.5)


def test_so_many_steps_and_no_more_are_taken():
    actions, taken, _ = go_explore.go_explore(CHAIN, goal=2.0, most=300)
    assert actions is None
    assert 300 <= taken < 400


def test_actions_repeat_as_often_as_is_said():
    actions = np.array(list(go_explore.random_actions(np.random.default_rng(0), 4, 20_000, 0.8)))
    assert np.mean(np.diff(actions) == 0) == pytest.approx(0.8 + 0.2 / 4, abs=0.01)
    assert set(actions) == set(range(4))
