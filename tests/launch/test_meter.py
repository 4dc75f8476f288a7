"""The meter against the limiter's own rule, without Reverb."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from acme_ext.launch.engines.sample_meter import SampleMeter
from acme_ext.replay.limits import RateLimit


class Limited:
    """As much of a replay as a meter asks."""

    def __init__(self, limit: RateLimit | None):
        self.limit = limit

    def samples_allowed(self, inserts: int) -> float:
        return inserts if self.limit is None else self.limit.samples_allowed(inserts)


def meter(limit: RateLimit | None, items: int, *seen: int, ahead: int = 0) -> SampleMeter:
    return SampleMeter(Limited(limit), items, *seen, ahead=ahead)  # type: ignore[arg-type]


def test_a_queue_gives_a_call_for_each_full_batch():
    tried = meter(None, 8)
    assert [tried.due(inserted) for inserted in (3, 7, 8, 15, 30, 31, 32)] == [0, 0, 1, 0, 2, 0, 1]


def test_by_hand_with_a_ratio():
    # From 10 inserts on: 2 samples an insert, and 4 ahead; calls of 6.
    tried = meter(RateLimit(2.0, 10, 4.0), 6)
    assert [tried.due(inserted) for inserted in (9, 10, 11, 13, 14, 17, 25)] == [0, 0, 1, 0, 1, 1, 2]


def test_a_call_is_held_back_until_the_last():
    tried = meter(RateLimit(2.0, 10, 4.0), 6, ahead=1)
    assert [tried.due(inserted) for inserted in (11, 14, 17)] == [0, 1, 1]
    assert tried.due(17, last=True) == 1
    assert tried.due(17, last=True) == 0


def test_without_a_ratio_a_call_each_time_once_the_smallest_size_is_there():
    tried = meter(RateLimit(None, 10), 6, ahead=1)
    assert [tried.due(inserted) for inserted in (0, 9, 10, 10, 11)] == [0, 0, 1, 1, 1]


def test_goes_on_from_what_the_table_had_seen():
    tried = meter(RateLimit(2.0, 10, 4.0), 6, 14, 7)  # 12 were allowed: 5 were left
    assert tried.due(0) == 0
    assert tried.due(1) == 1


def test_a_table_that_was_sampled_ahead_owes_nothing():
    assert meter(RateLimit(2.0, 10, 4.0), 6, 10, 400).due(50) == 0


class Table:
    """Reverb's rate limiter, by its own rule."""

    def __init__(self, limit: RateLimit):
        ratio = limit.samples_per_insert
        assert ratio is not None
        self.ratio, self.min_size = ratio, limit.min_size
        self.low, self.high = ratio * limit.min_size - limit.error_buffer, ratio * limit.min_size + limit.error_buffer
        self.inserts = self.samples = 0

    def insert(self) -> bool:
        free = self.inserts + 1 <= self.min_size
        done = free or (self.inserts + 1) * self.ratio - self.samples <= self.high
        self.inserts += done
        return done

    def sample(self) -> bool:
        done = self.inserts >= self.min_size and self.inserts * self.ratio - self.samples - 1 >= self.low
        self.samples += done
        return done


@settings(deadline=None)
@given(
    ratio=st.one_of(st.sampled_from([0.1, 1.0, 8.0, 64.0, 1 / 3, 1.1]), st.floats(0.05, 70)),
    slack=st.sampled_from([1.0, 1.5, 32.0]),
    min_size=st.integers(1, 40),
    items=st.integers(1, 200),
    rows=st.integers(1, 33),
    ahead=st.sampled_from([0, 1]),
)
def test_whoever_asks_for_what_is_due_is_given_it(ratio, slack, min_size, items, rows, ahead):
    """Acting and learning in turn, with a reader that never takes more than two calls' items ahead of the learner."""
    limit = RateLimit(ratio, min_size, slack * max(1.0, ratio))
    table, tried = Table(limit), meter(limit, items, ahead=ahead)
    sent = learned = 0  # rows the writer has handed over, items the learner took

    def settle() -> None:
        moved = True
        while moved:
            moved = False
            while table.inserts < sent and table.insert():
                moved = True
            while table.samples < learned + 2 * items and table.sample():
                moved = True

    for tick in range(60):
        sent += rows
        for _ in range(tried.due(sent, last=tick == 59)):
            settle()
            assert table.samples >= learned + items, "the learner waits for ever"
            learned += items
        settle()
        assert table.inserts == sent, "the writer waits for ever"
    assert learned <= table.samples <= limit.samples_allowed(sent)
    assert math.floor(limit.samples_allowed(sent)) - learned < items
