import subprocess
import sys

import numpy as np
import pytest

from acme_ext import envs
from acme_ext.envs.minigrid import MiniGrid
from acme_ext.errors import UsageError


@pytest.mark.parametrize(
    ("view", "shape", "dtype"),
    [("grid", (7, 7, 21), np.bool_), ("whole", (5, 5, 21), np.bool_), ("picture", (56, 56, 3), np.uint8)],
)
def test_views_hold_the_contract(view, shape, dtype, rollout):
    with envs.make("minigrid:DoorKey-5x5", num_envs=2, seed=1, view=view, max_steps=9) as environment:
        timesteps = rollout(environment, 12)
    observation = np.stack([t.observation for t in timesteps])
    assert (observation.shape[2:], observation.dtype) == (shape, dtype)
    if dtype == np.bool_:  # each cell has one object, one colour and one state
        np.testing.assert_array_equal(observation.sum(axis=-1), 3)
    assert (timesteps[9].step_type == 2).all()
    assert (timesteps[9].discount == 1).all()  # out of time


def test_maps_differ_unless_they_are_fixed():
    def maps(**options):
        environment = envs.make_single("minigrid:MiniGrid-DoorKey-6x6-v0", view="whole", seed=3, **options)
        return [environment.reset().observation for _ in range(4)]

    assert any((one != two).any() for one, two in zip(maps()[1:], maps()[:-1], strict=True))
    same = maps(fixed_map=True)
    assert all((one == same[0]).all() for one in same)


def test_the_agent_is_on_the_whole_map_with_its_direction():
    environment = envs.make_single("minigrid:Empty-5x5", view="whole")
    before, after = environment.reset().observation, environment.step(1).observation  # turns right
    assert before[1, 1, 10] == after[1, 1, 10] == 1
    assert before[1, 1, 17:].argmax() != after[1, 1, 17:].argmax()


@pytest.mark.parametrize(("options", "says"), [({"view": "map"}, "one of grid"), ({"max_steps": 0}, "at least 1")])
def test_what_it_does_not_take_is_refused(options, says):
    with pytest.raises(UsageError, match=says):
        envs.make("minigrid:Empty-5x5", **options)


def test_a_name_that_is_none_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'minigrid:DoorKey-8x8'"):
        envs.make("minigrid:DorKey-8x8")


def test_other_versions_are_named():
    assert {"MultiRoom-N4-S5", "MultiRoom-N4-S5-v1"} <= set(MiniGrid().names())
    for name in ("minigrid:MultiRoom-N4-S5-v1", "gym:MiniGrid-MultiRoom-N4-S5-v1"):
        with envs.make(name, num_envs=1) as environment:
            inner = environment.environments[0].environment.unwrapped
            assert inner.spec.id == "MiniGrid-MultiRoom-N4-S5-v1"


def test_nothing_is_said_when_it_is_loaded():
    done = subprocess.run([sys.executable, "-c", "import acme_ext.envs.minigrid"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["gym:MiniGrid-Empty-5x5-v0", "gym:minigrid:MiniGrid-Empty-5x5-v0"])
def test_gymnasiums_ids_mean_the_same(name):
    named = envs.make_single("minigrid:Empty-5x5", seed=1, view="whole").reset().observation
    np.testing.assert_array_equal(envs.make_single(name, seed=1, view="whole").reset().observation, named)
