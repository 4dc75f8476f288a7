import itertools

import jax
import numpy as np
import pytest

from acme_ext import envs
from acme_ext.envs import explore, functional
from acme_ext.errors import UsageError
from acme_ext.types import FIRST, LAST, MID

TASKS = ("chain", "key_door", "random_coin", "disco_maze")
UP, RIGHT, DOWN, LEFT = range(4)


@pytest.mark.parametrize("task", TASKS)
def test_tasks_hold_the_contract(task, rollout):
    with envs.make(f"explore:{task}", num_envs=2, max_steps=7) as environment:
        timesteps = rollout(environment, 40)
    assert any((t.step_type == LAST).any() for t in timesteps)


def steps(environment, actions):
    environment.reset()
    return [environment.step(action) for action in actions]


def test_key_door_by_its_shortest_way():
    environment = envs.make_single("explore:key_door", size=5, max_steps=30)
    # Up to the key, down and through the door, up to the goal; without the key the door is a wall.
    way = steps(environment, [UP] * 4 + [DOWN] * 4 + [RIGHT] * 4 + [UP] * 4)
    assert [t.reward for t in way] == [0.0] * 15 + [1.0]
    assert way[-1].last()
    assert way[-1].discount == 0.0
    shut = steps(environment, [RIGHT] * 4)
    np.testing.assert_array_equal(shut[1].observation, shut[3].observation)
    assert shut[1].observation.reshape(2, 5, 5)[0, 4, 1] == 1
    assert way[3].observation.reshape(2, 5, 5)[1, 0, 0] == 1  # the key is seen as soon as it is there


def test_the_chain_goes_back_at_one_wrong_action():
    environment = envs.make_single("explore:chain", size=6, max_steps=50)
    code = []
    for _ in range(6):  # finds the way place by place
        for action in (0, 1):
            last = steps(environment, [*code, action])[-1]
            if last.last() or last.observation.argmax() == len(code) + 1:
                code.append(action)
                break
    assert len(code) == 6
    assert set(code) == {0, 1}
    way = steps(environment, code)
    assert [t.reward for t in way] == [0.0] * 5 + [1.0]
    assert steps(environment, [*code[:3], 1 - code[3]])[-1].observation.argmax() == 0


def test_a_coin_is_worth_1_and_ends_the_episode():
    environment = envs.make_single("explore:random_coin", size=5, max_steps=20, seed=3)
    starts, timestep = set(), environment.reset()
    for _ in range(20):
        assert timestep.first()
        agent, coin = (np.argwhere(timestep.observation[..., i])[0] for i in range(2))
        starts.add((*agent, *coin))
        down, right = coin - agent
        for action in [DOWN if down > 0 else UP] * abs(down) + [RIGHT if right > 0 else LEFT] * abs(right):
            assert not timestep.last()
            timestep = environment.step(action)
        assert (timestep.reward, timestep.discount) == (1.0, 0.0)
        timestep = environment.step(UP)
    assert len(starts) > 15


def test_the_coin_is_the_same_in_a_compiled_run():
    room = envs.make_functional("explore:random_coin", size=5, max_steps=3)
    assert room == envs.make_functional("explore:random_coin", size=5, max_steps=3)
    assert envs.make_functional("explore:key_door") is None
    rows = functional.row_keys(4, 2)
    batch = functional.FunctionalBatch(room, 2, 4)
    first = batch.reset().observation
    np.testing.assert_array_equal(first, jax.vmap(room.reset)(rows)[1].observation)
    assert first.sum(axis=(1, 2, 3)).tolist() == [2, 2]
    ends = [batch.step(np.array([UP, DOWN])) for _ in range(3)][-1]
    assert ((ends.step_type == LAST) | (ends.reward == 1)).all()
    with pytest.raises(UsageError, match="must be at least"):
        envs.make_functional("explore:random_coin", size=2)


def test_mazes_are_connected_without_loops_and_differ():
    make = jax.jit(jax.vmap(lambda key: explore._maze(key, 9)))
    mazes = np.asarray(make(functional.row_keys(0, 20)))
    np.testing.assert_array_equal(mazes, make(functional.row_keys(0, 20)))  # by the seed
    assert len({maze.tobytes() for maze in mazes}) > 15
    for free in mazes:
        assert not free[[0, -1]].any()
        assert not free[:, [0, -1]].any()
        assert free[1::2, 1::2].all()
        assert free.sum() == 16 + 15  # as many ways between as join all cells once
        reached, before = np.zeros_like(free), None
        reached[1, 1] = True
        while before is None or (reached != before).any():
            before = reached.copy()
            for axis in (0, 1):
                reached |= (np.roll(before, 1, axis) | np.roll(before, -1, axis)) & free
        np.testing.assert_array_equal(reached, free)


def test_walls_of_the_disco_maze_change_colour_and_end_the_episode():
    step = jax.jit(explore.DiscoMaze(7, 5, evaluation=True).step)
    state, first = explore.DiscoMaze(7, 5, evaluation=True).reset(jax.random.key(1))
    free = np.asarray(state.inner.free)
    np.testing.assert_array_equal(first.observation[1, 1], [255, 255, 255])
    way, back = (RIGHT, LEFT) if free[1, 2] else (DOWN, UP)
    seen = [first]
    for action in (way, back, UP):
        state, timestep = step(state, action)
        seen.append(timestep)
    for before, after in itertools.pairwise(seen):
        assert (before.observation[~free] != after.observation[~free]).any()
        ways = np.asarray(after.observation)[free].sum(axis=-1)
        assert sorted(ways.tolist()) == [0] * (free.sum() - 1) + [3 * 255]  # black, and the agent
    assert [(int(t.step_type), float(t.reward)) for t in seen[:3]] == [(FIRST, 0), (MID, 0), (MID, 0)]
    assert (seen[3].step_type, seen[3].discount) == (LAST, 0)
    np.testing.assert_allclose(seen[3].reward, 2 / free.sum())  # the share of the cells, each counted once
    state, timestep = step(state, UP)
    assert timestep.step_type == FIRST


def test_the_disco_maze_has_no_reward_in_training_and_ends_in_time():
    for evaluation in (False, True):
        maze = explore.DiscoMaze(7, 4, evaluation=evaluation)
        state, _ = maze.reset(jax.random.key(1))
        way, back = (RIGHT, LEFT) if state.inner.free[1, 2] else (DOWN, UP)
        for action in (way, back, way, back):
            state, timestep = jax.jit(maze.step)(state, action)
        assert (timestep.step_type, timestep.discount) == (LAST, 1)
        assert (timestep.reward > 0) == evaluation


@pytest.mark.parametrize(
    ("options", "says"),
    [({"size": 4}, "is 4: it must be at least 5"), ({"max_steps": 0}, "is 0: it must be at least 1")],
)
def test_what_is_no_task_is_refused(options, says):
    with pytest.raises(UsageError, match=says):
        envs.make("explore:chain", **options)
