"""Parameters from a learner in another process."""

import pickle
import threading
import time

import numpy as np
import pytest

from acme_ext.acting.remote import Publisher, RemoteVariables
from acme_ext.acting.variables import POLICY


class Source:
    """A learner whose parameters tell its step."""

    def __init__(self):
        self.steps = 0
        self.asked = 0

    def get_variables(self, names):
        assert list(names) == [POLICY]
        self.asked += 1
        return [{"w": np.full(3, self.steps, np.float32)}]


class StoppedError(Exception):
    pass


def remote(fetch, **options):
    return RemoteVariables(fetch, period_s=0.001, **options)


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def payload(version):
    return pickle.dumps({"w": np.full(3, version, np.float32)})


def test_a_version_is_pickled_once_and_sent_only_to_those_that_have_an_older_one():
    source = Source()
    publisher = Publisher(source, lambda: source.steps)
    version, first = publisher.fetch(-1)
    assert version == 0
    assert pickle.loads(first)["w"].tolist() == [0, 0, 0]
    assert publisher.fetch(-1) == (0, first)
    assert publisher.fetch(0) == (0, None)
    assert source.asked == 1
    source.steps = 7
    version, second = publisher.fetch(0)
    assert version == 7
    assert pickle.loads(second)["w"].tolist() == [7, 7, 7]
    assert source.asked == 2


def test_the_first_parameters_are_waited_for_and_newer_ones_come_by_themselves():
    source = Source()
    publisher = Publisher(source, lambda: source.steps)
    variables = remote(publisher.fetch)
    (params,) = variables.get_variables([POLICY])
    assert np.asarray(params["w"]).tolist() == [0, 0, 0]
    source.steps = 5
    assert variables.wait_for(5) == 5
    assert variables.version == 5
    (params,) = variables.get_variables([POLICY])
    assert np.asarray(params["w"]).tolist() == [5, 5, 5]
    variables.close()


def test_an_older_version_is_never_taken():
    answers = [(4, payload(4)), (2, payload(2)), (4, payload(4)), (6, payload(6))]
    seen = []

    def fetch(held):
        seen.append(held)
        return answers[min(len(seen), len(answers)) - 1]

    variables = remote(fetch)
    assert variables.wait_for(6) == 6
    assert seen[:4] == [-1, 4, 4, 4]
    (params,) = variables.get_variables([POLICY])
    assert np.asarray(params["w"]).tolist() == [6, 6, 6]
    variables.close()


def test_what_goes_wrong_is_raised_and_stays_so():
    broken = threading.Event()

    def fetch(held):
        if broken.is_set():
            raise ConnectionError("the learner is gone")
        return 3, payload(3) if held < 3 else None

    variables = remote(fetch)
    variables.get_variables([POLICY])
    broken.set()

    def fails():
        try:
            variables.get_variables([POLICY])
        except RuntimeError:
            return True
        return False

    wait_until(fails)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="can't be had any more") as raised:
            variables.get_variables([POLICY])
        assert isinstance(raised.value.__cause__, ConnectionError)


def test_a_wait_can_be_given_up():
    def on_wait():
        raise StoppedError

    variables = remote(lambda held: (0, payload(0) if held < 0 else None), on_wait=on_wait)
    wait_until(lambda: variables.version == 0)
    assert variables.wait_for(0) == 0
    with pytest.raises(StoppedError):
        variables.wait_for(1)
    variables.close()


def test_other_names_are_refused():
    variables = remote(lambda held: (0, payload(0)))
    with pytest.raises(ValueError, match="'critic'"):
        variables.get_variables(["critic"])
    variables.close()


def test_closing_ends_the_questions():
    asked = []

    def fetch(held):
        asked.append(held)
        return 0, payload(0)

    before = set(threading.enumerate())
    variables = remote(fetch)
    (thread,) = set(threading.enumerate()) - before
    wait_until(lambda: len(asked) > 2)
    variables.close()
    wait_until(lambda: not thread.is_alive())
