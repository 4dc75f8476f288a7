import tracemalloc

import dm_env
import numpy as np

from acme_ext.data.recorder import Recorder

FIRST, MID, LAST = 0, 1, 2


class Kept:
    """Stands for a folder, or for a writer."""

    keeps_state = True
    inserted = 7

    def __init__(self):
        self.episodes, self.calls, self.closed = [], [], False

    def add(self, *episode, **kept):
        self.episodes += episode if not kept else []
        self.calls.append(kept)

    def add_first(self, timestep):
        self.calls.append("first")

    def close(self):
        self.closed = True


def timestep(kinds, reward, discount, observation):
    return dm_env.TimeStep(
        np.array(kinds, np.uint8),
        np.array(reward, np.float32),
        np.array(discount, np.float32),
        np.array(observation, np.float32)[:, None],
    )


def test_each_environments_episodes_are_taken_apart():
    """Environment 0 ends by a termination after two steps and begins again; environment 1 goes on."""
    to, inner = Kept(), Kept()
    recorder = Recorder(to, inner)
    buffer = timestep([FIRST, FIRST], [0, 0], [1, 1], [10, 20])
    recorder.add_first(buffer)
    buffer.observation[:] = -1  # environments use their arrays again
    recorder.add(np.array([1, 5]), timestep([MID, MID], [1, 2], [1, 1], [11, 21]), (), state="s")
    recorder.add(np.array([2, 6]), timestep([LAST, MID], [3, 4], [0, 1], [12, 22]), (), state="s")
    recorder.add(np.array([9, 7]), timestep([FIRST, LAST], [0, 5], [1, 1], [13, 23]), (), state="s")
    recorder.add(np.array([3, 9]), timestep([LAST, FIRST], [6, 0], [1, 1], [14, 24]), (), state="s")
    recorder.close()
    first, second, third = to.episodes
    np.testing.assert_array_equal(first.observation[:, 0], [10, 11, 12])
    np.testing.assert_array_equal(first.action, [1, 2, 0])
    np.testing.assert_array_equal(first.reward, [0, 1, 3])
    np.testing.assert_array_equal(first.discount, [1, 1, 0])
    np.testing.assert_array_equal(first.step_type, [FIRST, MID, LAST])
    np.testing.assert_array_equal(second.observation[:, 0], [20, 21, 22, 23])
    np.testing.assert_array_equal(second.action, [5, 6, 7, 0])
    np.testing.assert_array_equal(third.observation[:, 0], [13, 14])
    assert (third.steps, third.score) == (1, 6.0)
    assert to.closed
    assert inner.closed
    assert recorder.inserted == 7
    assert inner.calls == ["first", *[{"state": "s"}] * 4]


def test_the_rest_of_an_episode_is_no_episode():
    """As where an inference server is started again, whose environments go on."""
    to = Kept()
    recorder = Recorder(to)
    recorder.add_first(timestep([MID], [1], [1], [10]))
    for kind in (MID, LAST, FIRST, MID, LAST):
        recorder.add(np.array([1]), timestep([kind], [1], [1], [11]))
    (only,) = to.episodes
    np.testing.assert_array_equal(only.step_type, [FIRST, MID, LAST])


def test_an_episode_goes_on_where_only_the_policy_begins_anew():
    to, inner = Kept(), Kept()
    recorder = Recorder(to, inner)
    recorder.add_first(timestep([FIRST], [0], [1], [10]))
    recorder.add(np.array([1]), timestep([MID], [1], [1], [11]), (), state="s")
    recorder.add_anew(timestep([MID], [1], [1], [11]))
    recorder.add(np.array([1]), timestep([LAST], [1], [0], [12]), (), state="s")
    (only,) = to.episodes
    np.testing.assert_array_equal(only.observation[:, 0], [10, 11, 12])
    assert inner.calls == ["first", {"state": "s"}, "first", {"state": "s"}]


def test_a_long_episode_does_not_hold_the_steps_of_others_in_memory():
    class Nowhere:
        def add(self, episode):
            pass

    recorder = Recorder(Nowhere())
    kinds, pictures = np.full(20, FIRST, np.uint8), np.zeros((20, 10_000), np.uint8)
    number = np.zeros(20, np.float32)
    recorder.add_first(dm_env.TimeStep(kinds, number, number, pictures))
    tracemalloc.start()
    for step in range(100):
        # Environment 0 goes on; all others have episodes of one step.
        kinds = np.array([MID] + [FIRST if step % 2 else LAST] * 19, np.uint8)
        recorder.add(np.zeros(20, np.int32), dm_env.TimeStep(kinds, number, number, pictures))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 100 * 10_000 <= held < 200 * 10_000  # twenty times as much with the steps of the others
