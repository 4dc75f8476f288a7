"""What a policy keeps for each environment beside its recurrent state."""

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting import memories
from acme_ext.acting.actor import Actor
from acme_ext.acting.inference import LocalInference
from acme_ext.acting.policy import Policy, PolicyMemory, StateAndMemory
from acme_ext.acting.slots import SlotCore, bucket_sizes


def apply(params, context, observation, state):
    """Counts the episodes of the run and the steps of the episode, and acts by them."""
    run = context.memory.run + context.first
    episode = jnp.where(context.first, 0, context.memory.episode) + 1
    return 100 * run + episode, StateAndMemory(state, PolicyMemory(run, episode)), episode


POLICY = Policy(
    apply,
    init_policy_memory=lambda batch: PolicyMemory(np.zeros(batch, np.int32), np.zeros(batch, np.int32)),
    shared_statistics=lambda run: {"episodes": np.sum(run)},
)


class Variables:
    params = ()


def timestep(*first):
    kind = np.where(np.array(first), dm_env.StepType.FIRST, dm_env.StepType.MID).astype(np.uint8)
    zeros = np.zeros(len(first), np.float32)
    return dm_env.TimeStep(kind, zeros, zeros + 1, zeros[:, None])


FIRSTS = ((True, True), (False, False), (False, True), (True, False))
ACTIONS = ([101, 101], [102, 102], [103, 201], [201, 202])


def local():
    return LocalInference(POLICY, Variables(), jax.random.key(0), 2)


def test_an_actor_keeps_it_and_nobody_else_resets_it():
    inference = local()
    for first, wanted in zip(FIRSTS, ACTIONS, strict=True):
        acted = inference.step(0, timestep(*first))
        np.testing.assert_array_equal(acted.action, wanted)
        assert acted.state == ()  # it is no recurrent state: no replay is given it
    assert inference.core.shared_statistics() == [4]


def test_a_server_keeps_it_by_slot():
    core = SlotCore(POLICY, 2, bucket_sizes(2))
    core.warm_up((), np.zeros((1, 1), np.float32))
    for first, wanted in zip(FIRSTS, ACTIONS, strict=True):
        for slot in (1, 0):
            acted = core.step(
                (),
                np.array([slot], np.int32),
                np.zeros(1, np.int32),
                0,
                np.array([first[slot]]),
                np.zeros(1, np.float32),
                np.zeros((1, 1), np.float32),
            )
            assert acted.action[0] == wanted[slot]


def test_what_outlives_an_episode_is_saved_with_the_actor():
    actor = Actor(local(), num_envs=2)
    actor.observe_first(timestep(True, True))
    actor.select_action(np.zeros((2, 1), np.float32))
    saved = actor.save()
    resumed = Actor(local(), num_envs=2)
    resumed.restore(saved)
    resumed.observe_first(timestep(True, True))
    np.testing.assert_array_equal(resumed.select_action(np.zeros((2, 1), np.float32)), [201, 201])


def test_rows_that_a_save_does_not_have_stay_as_they_are():
    text = memories.pack({"a": np.arange(4)})
    np.testing.assert_array_equal(memories.unpack(text, {"a": np.full(6, 9)})["a"], [0, 1, 2, 3, 9, 9])
    np.testing.assert_array_equal(memories.unpack(text, {"a": np.full(2, 9)})["a"], [0, 1])


def test_standings_of_actors_are_added_and_given_to_each_environment():
    total = memories.added([[[1.0, 2.0], 3.0], [[10.0, 20.0], 30.0]])
    assert total == [[11, 22], 33]
    assert memories.added([]) is None
    each = memories.of_each(total, (np.zeros((3, 2), np.float32), np.zeros(3, np.float32)))
    np.testing.assert_array_equal(each[0], [[11, 22]] * 3)
    np.testing.assert_array_equal(each[1], [33] * 3)
    np.testing.assert_array_equal(memories.of_each(None, np.ones(3)), [0, 0, 0])
