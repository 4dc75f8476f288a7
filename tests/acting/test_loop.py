import dm_env
import jax
import numpy as np
import pytest
from acme.utils import counting
from acme.utils.observers import ActionNormObserver
from worlds import LENGTHS, Corridor, Foreign, Source, Watcher, corridors, counting_policy, local_actor

from acme_ext import envs
from acme_ext.acting.loop import EnvironmentLoop
from acme_ext.acting.unbatched import Observers, SingleActor
from acme_ext.envs.gym import GymVectorEnvironment
from acme_ext.errors import UsageError


def actor_of(num_envs, source=None):
    return local_actor(counting_policy(), source or Source(), jax.random.key(0), num_envs=num_envs)


def naive(num_envs, ticks):
    """`(environment, return, length)` of the episodes that a loop finishes, in its order, and the steps of each tick.

    The policy's i-th action of an episode is i % 5, and a step is worth 1 + its action.
    """
    episodes, steps = [], np.zeros(ticks, int)
    for env in range(num_envs):
        t, episode = 0, 0
        while t < ticks:
            length = LENGTHS[env][episode % len(LENGTHS[env])]
            steps[t : t + length] += 1
            if t + length <= ticks:
                value = sum(1 + i % 5 for i in range(1, length + 1))
                episodes.append((t + length - 1, env, float(value), length))
            t += length + 1  # one tick resets
            episode += 1
    return [episode[1:] for episode in sorted(episodes)], steps


@pytest.mark.parametrize("num_envs", [1, 8])
def test_counts_returns_and_lengths(num_envs):
    episodes = []
    counter = counting.Counter(counting.Counter(), "environment", time_delta=0.0)
    loop = EnvironmentLoop(corridors(num_envs), actor_of(num_envs), counter=counter, on_episode=episodes.append)
    expected, steps = naive(num_envs, 60)
    assert [loop.step() for _ in range(60)] == steps.tolist()
    assert [(e.env, e.episode_return, e.length) for e in episodes] == expected
    assert all(e.metrics == {} for e in episodes)
    assert counter.get_counts() == {"environment_steps": steps.sum(), "environment_episodes": len(expected)}


def test_observers_see_their_own_environment_unbatched():
    watchers, episodes = [[Watcher(), ActionNormObserver()] for _ in range(8)], []
    environment = corridors(8)
    loop = EnvironmentLoop(environment, actor_of(8), on_episode=episodes.append, observers=watchers)
    for _ in range(60):
        loop.step()
    expected, _ = naive(8, 60)
    for env, (watcher, _) in enumerate(watchers):
        assert watcher.environments == {id(environment.environments[env])}
        for number, seen in enumerate(watcher.episodes):
            first, _ = seen[0]
            assert first.first()
            assert first.reward is None
            assert first.discount is None
            for time, (timestep, action) in enumerate(seen):
                np.testing.assert_array_equal(timestep.observation, [env, number, time])
                assert isinstance(timestep.step_type, dm_env.StepType)
                if time:
                    assert action == time % 5
                    assert timestep.reward == 1 + time % 5
                    over = time == LENGTHS[env][number % len(LENGTHS[env])]
                    assert timestep.last() == over
                    assert timestep.discount == (0.0 if over and number % 2 == 0 else 1.0)
    for (env, _, length), episode in zip(expected, episodes, strict=True):
        actions = [i % 5 for i in range(1, length + 1)]
        assert episode.env == env
        assert episode.metrics == {
            "seen": length + 1,
            "actions": sum(actions),
            "action_norm_avg": pytest.approx(np.mean(actions)),
            "action_norm_min": min(actions),
            "action_norm_max": max(actions),
        }


def test_observers_of_a_native_batch_see_the_batch():
    watchers = [Watcher(), Watcher()]
    with envs.make("gym:CartPole-v1", num_envs=2) as environment:
        assert isinstance(environment, GymVectorEnvironment)
        observers = Observers(environment, [[watcher] for watcher in watchers])
        observers.observe(None, environment.reset())
        actions = np.array([0, 1])
        observers.observe(actions, environment.step(actions))
    for env, watcher in enumerate(watchers):
        assert watcher.environments == {id(environment)}
        assert observers.metrics(env) == {"seen": 2, "actions": env}


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"episode_return": 1.0}, "a metric of Teller is named 'episode_return': the log has a column of this name"),
        ({"a,b": 1.0}, "a metric of Teller is named 'a,b': a column's name has no comma"),
        ({"far": np.zeros(2)}, "a metric of Teller can't be logged: .*'far'"),
        ({"far": "x"}, "a metric of Teller can't be logged: .*'far'"),
    ],
)
def test_an_observer_s_metric_that_is_no_column_is_named(metrics, message):
    class Teller(Watcher):
        def get_metrics(self):
            return metrics

    with envs.make("gym:CartPole-v1", num_envs=1) as environment, pytest.raises(UsageError, match=message):
        Observers(environment, [[Teller()]]).metrics(0)


def test_any_actor_of_one_environment_may_act():
    foreign = Foreign()
    episodes = []
    loop = EnvironmentLoop(corridors(1), SingleActor(foreign), on_episode=episodes.append)
    for _ in range(13):
        loop.step()
    # Episodes of 3, 1 and 4 steps with a reset after each, and then 2 steps more.
    assert [(e.episode_return, e.length) for e in episodes] == [(1 + 2 + 3, 3), (1, 1), (1 + 2 + 3 + 4, 4)]
    log = iter(foreign.log)
    for number, length in enumerate([3, 1, 4, 2]):
        for time in range(length + 1):
            action, timestep = next(log)
            # As they were told: the environments' buffers have been overwritten since.
            np.testing.assert_array_equal(timestep.observation, [0, number, time])
            if time == 0:
                assert action is None
                assert (timestep.reward, timestep.discount) == (None, None)
            else:
                assert action == (time - 1) % 5
                assert timestep.reward == 1 + action
    assert next(log, None) is None
    assert foreign.updates == [False] * 13


def test_the_foreign_actors_wait_is_passed_on():
    foreign = Foreign()
    SingleActor(foreign).update(wait=True)
    assert foreign.updates == [True]


@pytest.mark.parametrize("should_update", [True, False])
def test_updates_once_a_step_or_never(should_update):
    source = Source()
    loop = EnvironmentLoop(corridors(2), actor_of(2, source), should_update=should_update)
    for _ in range(10):
        loop.step()
    assert source.calls == 1 + 10 * should_update


def test_an_environment_that_raises_is_heard():
    class Broken(Corridor):
        def step(self, action):
            raise OSError("the simulator is gone")

    from acme_ext.envs.vector import VectorEnvironment

    loop = EnvironmentLoop(VectorEnvironment([Broken(0, [3])]), actor_of(1))
    with pytest.raises(OSError, match="the simulator is gone"):
        loop.step()
