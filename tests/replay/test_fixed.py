import acme.specs
import numpy as np
import pytest
from dm_env import specs

from acme_ext.data.format import Episode
from acme_ext.envs.specs import DISCOUNT, REWARD
from acme_ext.errors import UsageError
from acme_ext.replay.fixed import FixedBatches, FixedRows, rows_of
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.replay.transitions import TransitionReplay

SPEC = acme.specs.EnvironmentSpec(specs.Array((1,), np.float32), specs.DiscreteArray(3), REWARD, DISCOUNT)


def episode(rewards, last_discount=0.0, start=0.0):
    length = len(rewards)
    return Episode(
        start + np.arange(length + 1, dtype=np.float32)[:, None],
        np.arange(length + 1, dtype=np.int32) % 3,
        np.array([0, *rewards], np.float32),
        np.array([1] * length + [last_discount], np.float32),
        np.array([0] + [1] * (length - 1) + [2], np.uint8),
    )


def test_transitions_are_those_that_the_table_would_hold():
    replay = TransitionReplay(SPEC, batch_size=4, n_step=2, discount=0.5)
    found = replay.decode(rows_of(replay, [episode([1.0, 2.0, 4.0]), episode([8.0], last_discount=1.0, start=100.0)]))
    order = np.argsort(found.observation[:, 0])
    np.testing.assert_array_equal(found.observation[order, 0], [0, 1, 2, 100])
    np.testing.assert_array_equal(found.next_observation[order, 0], [2, 3, 3, 101])
    np.testing.assert_array_equal(found.action[order], [0, 1, 2, 0])
    np.testing.assert_allclose(found.reward[order], [1 + 0.5 * 2, 2 + 0.5 * 4, 4, 8])
    # A termination, shorter ones before it, and a truncation, which is bootstrapped from.
    np.testing.assert_allclose(found.discount[order], [0.25, 0, 0, 0.5])


def test_sequences_begin_with_the_state_that_is_given():
    state = np.full((1, 2), 3.0, np.float32)
    replay = SequenceReplay(
        SPEC, batch_size=1, length=4, period=4, cross_episodes=False, discount=0.9, state=specs.Array((2,), np.float32)
    )
    rows = rows_of(replay, [episode([1.0, 2.0, 4.0])], state)
    found = replay.decode(rows)
    np.testing.assert_array_equal(found.state, state)
    np.testing.assert_array_equal(found.reward[:, 0], [0, 1, 2, 4, 0])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"order": "queue"}, "its own newest data"),
        ({"extras": np.zeros((), np.float32)}, "values that its policy computed with each action"),
    ],
)
def test_replays_that_need_an_actor_are_refused(fields, said):
    replay = TransitionReplay(SPEC, batch_size=4, **fields)
    with pytest.raises(UsageError, match=said):
        rows_of(replay, [episode([1.0])])


def test_rows_with_a_recurrent_state_need_one():
    state = specs.Array((2,), np.float32)
    replay = SequenceReplay(SPEC, batch_size=1, length=4, period=4, cross_episodes=False, discount=0.9, state=state)
    with pytest.raises(UsageError, match="the rows of its replay need initial_state"):
        rows_of(replay, [episode([1.0])])


def test_errors_of_other_data_are_not_restored():
    saved = FixedRows(np.zeros((10, 1), np.uint8), exponent=0.6).save()
    with pytest.raises(UsageError, match="the recorded data has 9 items, and had 10 when the run was saved"):
        FixedRows(np.zeros((9, 1), np.uint8), exponent=0.6).restore(saved)


def test_the_rows_of_a_prioritized_replay_are_those_of_a_uniform_one():
    found = [
        rows_of(TransitionReplay(SPEC, batch_size=4, order=o), [episode([1.0])]) for o in ("prioritized", "uniform")
    ]
    np.testing.assert_array_equal(*found)


def test_no_data_is_refused():
    with pytest.raises(UsageError, match="no steps"):
        rows_of(TransitionReplay(SPEC, batch_size=4), [])


def test_draws_are_uniform_repeat_and_go_on():
    rows = np.arange(10, dtype=np.uint8)[:, None]
    batches = FixedBatches(rows, 1_000, seed=3)
    first = next(batches)
    counts = np.bincount(first.rows[:, 0], minlength=10)
    assert counts.min() > 60  # a hundred each, with a standard deviation of 9.5
    assert counts.max() < 140
    np.testing.assert_allclose(first.probability, 0.1)
    np.testing.assert_array_equal(first.rows[:, 0], first.keys)
    saved = batches.save()
    second = next(batches)
    np.testing.assert_array_equal(next(FixedBatches(rows, 1_000, seed=3)).rows, first.rows)
    again = FixedBatches(rows, 1_000, seed=99)
    again.restore(saved)
    np.testing.assert_array_equal(next(again).rows, second.rows)
    assert np.any(first.rows != second.rows)
