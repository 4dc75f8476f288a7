import pytest

from acme_ext.acting.batching import Batcher


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_whatever_is_there_is_a_batch_where_nobody_may_wait(clock):
    batcher = Batcher(most=100, clock=clock)
    assert batcher.due_s() is None
    assert batcher.take() == []
    batcher.add("a", 1, "a1")
    assert batcher.due_s() == 0
    batcher.add("b", 2, "b1")
    assert batcher.take() == ["a1", "b1"]
    assert batcher.due_s() is None


def test_a_batch_has_no_more_than_the_most_and_requests_are_not_split():
    batcher = Batcher(most=5)
    batcher.add("a", 1, "a")
    for name in "bcdef":
        batcher.add(name, 2, name)
    batcher.add("huge", 9, "huge")
    batches = []
    while batcher.due_s() == 0:
        batches.append(batcher.take())
    assert batches == [["a", "b", "c"], ["d", "e"], ["f"], ["huge"]]


def test_waits_until_enough_of_the_living_have_asked(clock):
    batcher = Batcher(most=100, share=0.5, wait_s=1.0, clock=clock)
    # Nobody else is known at first, so a lone caller is everybody.
    batcher.add("a", 2, "a1")
    assert batcher.due_s() == 0
    batcher.take()
    clock.now += 1
    batcher.add("b", 1, "b1")  # 3 are alive now, and one of them asks
    assert batcher.due_s() == 1.0
    clock.now += 0.25
    assert batcher.due_s() == 0.75
    batcher.add("a", 2, "a2")
    assert batcher.due_s() == 0
    assert batcher.take() == ["b1", "a2"]


def test_enough_is_never_more_than_a_batch_holds(clock):
    batcher = Batcher(most=3, share=1.0, wait_s=1.0, clock=clock)
    for name in "abcd":
        batcher.add(name, 1, name)
    assert batcher.take() == ["a", "b", "c"]
    for name in "ab":
        batcher.add(name, 1, name)
    assert batcher.due_s() == 0  # three of four
    assert batcher.take() == ["d", "a", "b"]


def test_the_oldest_request_waits_no_longer_than_it_may(clock):
    batcher = Batcher(most=100, share=1.0, wait_s=0.05, clock=clock)
    batcher.add("gone", 1, "its only one")
    batcher.take()
    batcher.add("a", 1, "a1")
    assert batcher.due_s() == pytest.approx(0.05)
    clock.now += 0.06
    assert batcher.due_s() == 0
    assert batcher.take() == ["a1"]


def test_nobody_waits_for_the_dead(clock):
    batcher = Batcher(most=100, share=1.0, wait_s=60.0, clock=clock)
    batcher.add("gone", 1, "its only one")
    batcher.take()
    clock.now += 4
    batcher.add("a", 1, "a1")
    assert batcher.due_s() == 60.0
    clock.now += 2  # 6 seconds without a word
    assert batcher.due_s() == 0
