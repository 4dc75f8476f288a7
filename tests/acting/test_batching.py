import itertools
import threading
import time
from concurrent.futures import Future

import pytest

from acme_ext.acting.batching import Batcher

WAIT_S = 10


class Device:
    """Keeps the batches it ran; while the gate is closed it is busy."""

    def __init__(self):
        self.batches: list[list] = []
        self.gate = threading.Event()
        self.gate.set()
        self.busy = threading.Event()

    def __call__(self, requests):
        self.busy.set()
        assert self.gate.wait(WAIT_S)
        self.batches.append(list(requests))
        if "bad" in requests:
            raise ValueError("a bad batch")
        return [f"answer to {request}" for request in requests]


@pytest.fixture
def device():
    return Device()


class Threads(Batcher):
    """A batcher whose requests are made by threads of their own."""

    def submit(self, caller, size, request):
        before = self._seen.get(caller)
        future = Future()
        threading.Thread(target=self._ask, args=(future, caller, size, request), daemon=True).start()
        while self._seen.get(caller) is before and not future.done():  # then it is in the queue
            time.sleep(0.001)
        return future

    def _ask(self, future, caller, size, request):
        try:
            future.set_result(self.ask(caller, size, request))
        except Exception as error:
            future.set_exception(error)


@pytest.fixture
def make(device):
    made = []

    def make(**options):
        made.append(Threads(device, **options))
        return made[-1]

    yield make
    device.gate.set()
    for batcher in made:
        batcher.close(RuntimeError("the end"))


def test_what_comes_while_the_device_is_busy_is_one_batch(device, make):
    batcher = make(most=100)
    device.gate.clear()
    first = batcher.submit("a", 1, "a1")
    assert device.busy.wait(WAIT_S)
    others = [batcher.submit(name, 2, f"{name}1") for name in "bcd"]
    device.gate.set()
    assert first.result(WAIT_S) == "answer to a1"
    assert [future.result(WAIT_S) for future in others] == ["answer to b1", "answer to c1", "answer to d1"]
    assert device.batches == [["a1"], ["b1", "c1", "d1"]]


def test_a_batch_has_no_more_than_the_most_and_requests_are_not_split(device, make):
    batcher = make(most=5)
    device.gate.clear()
    futures = [batcher.submit("a", 1, "a")]
    assert device.busy.wait(WAIT_S)
    futures += [batcher.submit(name, 2, name) for name in "bcdef"]
    device.gate.set()
    for future in futures:
        future.result(WAIT_S)
    assert device.batches == [["a"], ["b", "c"], ["d", "e"], ["f"]]


def test_waits_until_enough_of_the_living_have_asked(device, make):
    batcher = make(most=100, share=1.0, wait_s=WAIT_S)
    # Nobody else is known at first, so a lone caller is everybody.
    assert batcher.submit("a", 1, "a1").result(WAIT_S) == "answer to a1"
    device.gate.clear()
    batcher.submit("b", 1, "b1")  # two are alive now, and one of them has asked: it waits
    assert not device.busy.wait(0.0) or device.batches == [["a1"]]
    second = batcher.submit("a", 1, "a2")
    device.gate.set()
    assert second.result(WAIT_S) == "answer to a2"
    assert device.batches == [["a1"], ["b1", "a2"]]


def test_the_oldest_request_waits_no_longer_than_it_may(device, make):
    batcher = make(most=100, share=1.0, wait_s=0.05)
    batcher.submit("gone", 1, "its only one").result(WAIT_S)
    began = time.monotonic()
    assert batcher.submit("a", 1, "a1").result(WAIT_S) == "answer to a1"
    assert time.monotonic() - began >= 0.04  # it did wait for the one that is gone
    assert device.batches[-1] == ["a1"]


def test_an_error_is_raised_to_its_batch_alone(device, make):
    batcher = make(most=100)
    with pytest.raises(ValueError, match="a bad batch"):
        batcher.submit("a", 1, "bad").result(WAIT_S)
    assert batcher.submit("a", 1, "good").result(WAIT_S) == "answer to good"


def test_the_end_wakes_everybody(device, make):
    batcher = make(most=100)
    device.gate.clear()
    running = batcher.submit("a", 1, "a1")
    assert device.busy.wait(WAIT_S)
    waiting = batcher.submit("b", 1, "b1")
    closer = threading.Thread(target=batcher.close, args=(RuntimeError("the end"),))
    closer.start()
    with pytest.raises(RuntimeError, match="the end"):
        waiting.result(WAIT_S)
    device.gate.set()
    closer.join(WAIT_S)
    assert running.result(WAIT_S) == "answer to a1"  # what ran was finished
    with pytest.raises(RuntimeError, match="the end"):
        batcher.submit("c", 1, "c1").result(WAIT_S)


def test_every_request_of_many_threads_is_answered_once():
    ran = []

    def run(requests):
        ran.append(requests)
        return [request + 1 for request in requests]

    batcher = Batcher(run, most=4)
    wrong = []

    def ask(caller):
        for n in range(1000 * caller, 1000 * caller + 200):
            if batcher.ask(caller, 1, n) != n + 1:
                wrong.append(n)

    threads = [threading.Thread(target=ask, args=(caller,)) for caller in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not wrong
    assert sorted(itertools.chain(*ran)) == [1000 * c + n for c in range(8) for n in range(200)]
    assert max(map(len, ran)) <= 4
    batcher.close(RuntimeError("the end"))


def test_the_end_reaches_one_who_waits_for_others(make):
    batcher = make(most=100, share=1.0, wait_s=WAIT_S)
    batcher.submit("gone", 1, "its only one").result(WAIT_S)
    waiting = batcher.submit("a", 1, "a1")
    batcher.close(RuntimeError("the end"))
    with pytest.raises(RuntimeError, match="the end"):
        waiting.result(WAIT_S)
