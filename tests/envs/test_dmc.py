from typing import Any

import numpy as np
import pytest
from dm_env import specs

from acme_ext import envs
from acme_ext.envs.backend import environment_seed
from acme_ext.envs.dmc import FlatObservation, suite
from acme_ext.types import FIRST, LAST, MID


def test_observations_are_one_vector_in_the_suites_order():
    environment = envs.make_single("dmc:walker/walk", seed=3)
    inner = suite.load("walker", "walk", task_kwargs={"random": environment_seed(3, False)})
    assert environment.observation_spec() == specs.Array((24,), np.float32)
    a, b = environment.reset(), inner.reset()
    rng = np.random.default_rng(0)
    for _ in range(5):
        expected = np.concatenate([np.ravel(value) for value in b.observation.values()])
        np.testing.assert_array_equal(a.observation, expected.astype(np.float32))
        action = rng.uniform(-1, 1, 6).astype(np.float32)
        a, b = environment.step(action), inner.step(action)
        assert a.reward == np.float32(b.reward)


def test_the_dict_can_be_kept(rollout):
    with envs.make("dmc:walker/walk", num_envs=2, flatten=False) as environment:
        timesteps = rollout(environment, 3)
    assert {key: value.shape for key, value in timesteps[-1].observation.items()} == {
        "orientations": (2, 14),
        "height": (2,),
        "velocity": (2, 9),
    }


def test_actions_keep_their_bounds():
    spec = envs.make_single("dmc:cartpole/swingup").action_spec()
    assert spec == specs.BoundedArray((1,), np.float32, [-1.0], [1.0])


def test_the_time_limit_truncates(rollout):
    with envs.make("dmc:cartpole/swingup", num_envs=2) as environment:
        timesteps = rollout(environment, 1001)
    assert [t.step_type[0] for t in timesteps] == [FIRST] + [MID] * 999 + [LAST, FIRST]
    np.testing.assert_array_equal(timesteps[1000].discount, [1.0, 1.0])


def test_a_task_that_ends_by_itself_terminates():
    environment = envs.make_single("dmc:lqr/lqr_2_1", seed=0)
    assert isinstance(environment, FlatObservation)
    environment.reset()
    physics: Any = environment.environment.physics
    with physics.reset_context():  # The task is over once everything is at rest.
        physics.data.qpos[:] = 0.0
    timestep = environment.step(np.zeros(1, np.float32))
    assert timestep.last()
    assert timestep.discount == 0.0
    assert environment.step(np.zeros(1, np.float32)).first()


@pytest.mark.parametrize("name", ["dmc:humanoid/run", "dmc:fish/swim"])
def test_other_tasks_hold_the_contract(name, rollout):
    with envs.make(name, num_envs=2) as environment:
        rollout(environment, 5)
