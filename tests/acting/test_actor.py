import acme
import acme.core
import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from acme.utils import loggers
from worlds import Corridor, Recorder, Source, corridors, counting_policy, local_actor, random_policy

from acme_ext.acting.policy import Policy

FIRST, MID, LAST = (int(kind) for kind in (dm_env.StepType.FIRST, dm_env.StepType.MID, dm_env.StepType.LAST))
KEY = jax.random.key(3)


def make(policy, **options):
    return local_actor(policy, Source(), KEY, **options)


def drive(actor, environment, ticks):
    """Acts for some ticks as the loop does; returns actions `[T, B]` and step types `[T, B]` they were chosen at."""
    timestep = environment.reset()
    actor.observe_first(timestep)
    actions, kinds = [], []
    for _ in range(ticks):
        kinds.append(timestep.step_type.copy())
        action = actor.select_action(timestep.observation)
        actions.append(action)
        timestep = environment.step(action)
        actor.observe(action, timestep)
    return np.stack(actions), np.stack(kinds)


def test_of_one_environment_is_an_actor_like_any_other():
    recorder, source = Recorder(), Source()
    actor = local_actor(counting_policy(), source, KEY, writer=recorder)
    assert isinstance(actor, acme.core.Actor)
    acme.EnvironmentLoop(Corridor(0, [3, 1, 4]), actor, logger=loggers.NoOpLogger()).run(num_episodes=3)

    events = iter(recorder.events)
    for episode, length in enumerate([3, 1, 4]):
        kind, timestep = next(events)
        assert kind == "first"
        assert (timestep.step_type, timestep.reward, timestep.discount) == ([FIRST], [0.0], [1.0])
        np.testing.assert_array_equal(timestep.observation, [[0, episode, 0]])
        for time in range(1, length + 1):
            kind, action, timestep, extras = next(events)
            assert kind == "step"
            assert action.shape == (1,)
            # What came with the action is of the step before, and the state began anew with the episode.
            assert extras["count"] == [time]
            np.testing.assert_array_equal(extras["place"], [[0, episode, time - 1]])
            assert action == extras["count"] % 5
            assert timestep.reward == 1 + action
            assert timestep.step_type == [MID if time < length else LAST]
            assert timestep.discount == [0.0 if time == length and episode % 2 == 0 else 1.0]
            np.testing.assert_array_equal(timestep.observation, [[0, episode, time]])
    assert next(events, None) is None
    assert actor.environment_steps == 8
    assert source.calls == 1 + 8  # at first, and once a step


def test_an_unbatched_action_fits_the_environment():
    actor = make(counting_policy())
    timestep = Corridor(0, [3]).reset()
    actor.observe_first(timestep)
    action = actor.select_action(timestep.observation)
    assert action.shape == ()
    assert action.dtype == np.int32


def test_state_begins_anew_at_first_rows_only():
    recorder = Recorder()
    actor = make(counting_policy(), num_envs=8, writer=recorder)
    _, kinds = drive(actor, corridors(8), 40)
    for env in range(8):
        expected = 0
        for t in range(40):
            expected = 1 if kinds[t, env] == FIRST else expected + 1
            extras = recorder.events[t + 1][3]
            assert extras["count"][env] == expected
            np.testing.assert_array_equal(extras["pair"][env], [-1.0 + 0.5 * (expected - 1)] * 2)
    # Corridors of several lengths, so that rows began anew while others went on.
    assert any(0 < np.count_nonzero(row == FIRST) < 8 for row in kinds)


def test_extras_reach_the_writer_with_their_action():
    recorder = Recorder()
    actor = make(counting_policy(), num_envs=8, writer=recorder)
    actions, _ = drive(actor, corridors(8), 40)
    (kind, before), steps = recorder.events[0], recorder.events[1:]
    assert kind == "first"
    for t, (kind, action, timestep, extras) in enumerate(steps):
        assert kind == "step"
        np.testing.assert_array_equal(action, actions[t])
        np.testing.assert_array_equal(extras["count"] % 5, action)
        np.testing.assert_array_equal(extras["place"], before.observation)
        assert all(isinstance(x, np.ndarray) for x in extras.values())
        before = timestep


def test_a_policy_is_told_the_reward_that_came_with_the_observation():
    def apply(params, context, observation, state):
        return jnp.ones(8, jnp.int32), state, {"reward": context.reward}

    recorder = Recorder()
    drive(make(Policy(apply), num_envs=8, writer=recorder), corridors(8), 20)
    (_, before), steps = recorder.events[0], recorder.events[1:]
    for _, _, timestep, extras in steps:
        np.testing.assert_array_equal(extras["reward"], np.where(before.step_type == FIRST, 0, 2))
        before = timestep


def test_steps_are_counted_without_resets():
    recorder = Recorder()
    actor = make(counting_policy(), num_envs=8, writer=recorder)
    _, kinds = drive(actor, corridors(8), 40)
    moved = np.cumsum((kinds != LAST).sum(axis=1))  # a row that was LAST is reset by its next action
    told = [event[3]["steps"] for event in recorder.events[1:]]
    assert all((steps == steps[0]).all() for steps in told)
    np.testing.assert_array_equal([steps[0] for steps in told], [0, *moved[:-1]])
    assert actor.environment_steps == moved[-1]

    actor.environment_steps = 1_000  # of all actors
    drive(actor, corridors(8), 1)
    assert recorder.events[-1][3]["steps"][0] == 1_000


@pytest.mark.parametrize(
    ("num_envs", "rank", "expected"),
    [(None, None, [0]), (1, None, [0]), (5, None, [0, 0.25, 0.5, 0.75, 1]), (2, [0.3, 0.4], [0.3, 0.4])],
)
def test_ranks(num_envs, rank, expected):
    recorder = Recorder()
    rank = None if rank is None else np.array(rank, np.float32)
    actor = make(counting_policy(), num_envs=num_envs, writer=recorder, rank=rank)
    environment = corridors(num_envs or 1)
    if num_envs is None:
        (environment,) = environment.environments
    timestep = environment.reset()
    actor.observe_first(timestep)
    action = actor.select_action(timestep.observation)
    actor.observe(action, environment.step(action))
    np.testing.assert_allclose(recorder.events[-1][3]["rank"], expected)


def test_actions_do_not_depend_on_who_else_is_in_the_batch():
    alone, _ = drive(make(random_policy(), num_envs=1), corridors(1), 30)
    few, _ = drive(make(random_policy(), num_envs=3), corridors(3), 30)
    many, _ = drive(make(random_policy(), num_envs=8), corridors(8), 30)
    np.testing.assert_array_equal(many[:, :3], few)
    np.testing.assert_array_equal(many[:, :1], alone)
    # Neither do environments share their randomness, nor steps.
    assert len({tuple(row) for row in many.T}) == 8
    assert len({tuple(row) for row in many}) == 30


def test_a_seed_fixes_the_actions():
    first, _ = drive(make(random_policy(), num_envs=4), corridors(4), 20)
    again, _ = drive(make(random_policy(), num_envs=4), corridors(4), 20)
    other, _ = drive(local_actor(random_policy(), Source(), jax.random.key(4), num_envs=4), corridors(4), 20)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_a_restored_actor_goes_on_where_the_saved_one_would():
    whole, _ = drive(make(random_policy(), num_envs=4), corridors(4), 20)
    actor = make(random_policy(), num_envs=4)
    before, _ = drive(actor, corridors(4), 12)
    saved = actor.save()
    assert saved["steps"] == actor.environment_steps > 0
    resumed = make(random_policy(), num_envs=4)
    resumed.restore(saved)
    assert resumed.environment_steps == actor.environment_steps
    after, _ = drive(resumed, corridors(4), 8)
    np.testing.assert_array_equal(np.concatenate([before, after]), whole)


def test_a_step_of_all_environments_is_one_compiled_call():
    traces = []

    def apply(params, context, observation, state):
        traces.append(observation.shape)
        return policy.apply(params, context, observation, state)

    policy = counting_policy()
    drive(make(Policy(apply, policy.init_state), num_envs=8), corridors(8), 30)
    assert traces == [(8, 3)]


def test_acts_on_the_newest_parameters_and_updates_when_told():
    recorder, source = Recorder(), Source(offset=100)
    actor = local_actor(counting_policy(), source, KEY, num_envs=2, writer=recorder)
    environment = corridors(2)
    timestep = environment.reset()
    actor.observe_first(timestep)
    for updates in (0, 1, 2, 0):
        for _ in range(updates):
            actor.update()
        action = actor.select_action(timestep.observation)
        timestep = environment.step(action)
        actor.observe(action, timestep)
    told = [event[3]["params"][0] for event in recorder.events[1:]]
    assert told == [101, 102, 104, 104]


def test_acts_without_a_writer():
    actions, _ = drive(make(counting_policy(), num_envs=2), corridors(2), 5)
    np.testing.assert_array_equal(actions, [[1, 1], [2, 2], [3, 3], [4, 1], [1, 2]])


def test_only_a_writer_that_asks_is_told_the_state_before_the_action():
    class Keeper(Recorder):
        keeps_state = True

        def add(self, action, next_timestep, extras=(), state=()):
            super().add(action, next_timestep, (extras, state))

    keeper, recorder = Keeper(), Recorder()
    drive(make(counting_policy(), num_envs=8, writer=keeper), corridors(8), 40)
    drive(make(counting_policy(), num_envs=8, writer=recorder), corridors(8), 40)
    for (_, _, _, (extras, state)), (_, _, _, alone) in zip(keeper.events[1:], recorder.events[1:], strict=True):
        np.testing.assert_array_equal(extras["count"], alone["count"])
        # At an episode's first timestep it is the initial state, whatever the last episode left.
        np.testing.assert_array_equal(state["count"], extras["count"] - 1)
        np.testing.assert_array_equal(state["pair"], extras["pair"])
