"""Parameters from a learner in another process."""

import pickle
import threading
import time
import types

import dm_env
import numpy as np
import pytest
import spec_of

from acme_ext import builders
from acme_ext.acting import remote as acting_remote
from acme_ext.acting.remote import RemoteInference, RemoteVariables, Reply, VariableServer, renewal_s
from acme_ext.acting.variables import POLICY
from acme_ext.utils.calls import TOKEN_BYTES, RemoteCall


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


@pytest.fixture
def served():
    """A source, and what gives connections to the server of its parameters."""
    source, token = Source(), bytes(TOKEN_BYTES)
    server = VariableServer(source, lambda: source.steps, token)

    def connect():
        call = RemoteCall(lambda: ("localhost", server.port), token=token)

        def fetch(held):
            call.begin(held)
            return call.end()

        return fetch

    yield source, connect
    server.close()


@pytest.mark.parametrize(("name", "pauses"), [("a2c", False), ("impala", False), ("dqn", True), ("r2d2", True)])
def test_parameters_for_a_queue_are_asked_for_without_a_pause(name, pauses):
    assert (renewal_s(builders.make(name).make_agent(spec_of.discrete(2)).replay.fifo) > 0) == pauses


def test_a_version_is_pickled_once_and_sent_only_to_those_that_have_an_older_one(served):
    source, connect = served
    fetches = [connect() for _ in range(3)]
    for fetch in fetches:
        version, payload = fetch(-1)
        assert version == 0
        assert pickle.loads(payload)["w"].tolist() == [0, 0, 0]
    assert source.asked == 1
    assert fetches[0](0) == (0, None)  # after a while without a newer one
    source.steps = 7
    for fetch in fetches:
        version, payload = fetch(0)
        assert version == 7
        assert pickle.loads(payload)["w"].tolist() == [7, 7, 7]
    assert source.asked == 2


def test_who_holds_the_newest_is_answered_when_there_are_newer_ones(served):
    source, connect = served
    fetch, answers = connect(), []
    fetch(-1)
    waiting = threading.Thread(target=lambda: answers.append(fetch(0)))
    waiting.start()
    source.steps = 3
    waiting.join()
    if answers[0][1] is None:  # this machine was so slow that the half second was over
        answers[0] = fetch(0)
    assert answers[0][0] == 3


def test_a_source_that_fails_fails_the_call_and_not_the_server(served):
    source, connect = served
    fetch, get = connect(), source.get_variables
    source.get_variables = lambda names: 1 / 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        fetch(-1)
    source.get_variables = get
    assert fetch(-1)[0] == 0


def test_all_callers_together_get_a_share_and_who_has_waited_longest_is_first():
    source, token, order = Source(), bytes(TOKEN_BYTES), []
    server = VariableServer(source, lambda: source.steps, token, share=0.0)
    server._credit_s, answer = -1.0, server._answer
    server._answer = lambda since, call: order.append(call.arguments) or answer(since, call)
    calls = [RemoteCall(lambda: ("localhost", server.port), token=token) for _ in range(3)]
    for number, call in enumerate(calls):
        call.begin(-1 - number)
        wait_until(lambda expected=number: len(server._waiting) == expected + 1)
    assert order == []
    server._credit_s = 1.0
    for call in calls:
        assert call.end()[0] == 0
    assert order == [(-1,), (-2,), (-3,)]
    server.close()


def test_parameters_are_under_way_to_a_few_callers_at_once(monkeypatch):
    monkeypatch.setattr(acting_remote, "_AT_ONCE", 4)
    source, token = Source(), bytes(TOKEN_BYTES)
    source.get_variables = lambda names: [np.zeros(10_000_000, np.uint8)]  # more than the sockets hold
    server = VariableServer(source, lambda: source.steps, token, share=100.0)
    calls = [RemoteCall(lambda: ("localhost", server.port), token=token) for _ in range(6)]
    for call in calls:
        call.begin(-1)  # and doesn't read the answer
    wait_until(lambda: server._calls.unsent == 4 and len(server._waiting) == 2)
    for call in calls:
        version, payload = call.end()
        assert version == 0
        assert len(pickle.loads(payload)) == 10_000_000
    server.close()


def test_the_first_parameters_are_waited_for_and_newer_ones_come_by_themselves(served):
    source, connect = served
    variables = remote(connect())
    (params,) = variables.get_variables([POLICY])
    assert np.asarray(params["w"]).tolist() == [0, 0, 0]
    source.steps = 5
    assert variables.wait_for(5) == 5
    assert variables.version == 5
    (params,) = variables.get_variables([POLICY])
    assert np.asarray(params["w"]).tolist() == [5, 5, 5]
    variables.close()


def test_parameters_that_nobody_has_taken_are_not_followed_by_newer_ones():
    version, asked = 0, []

    def fetch(held):
        nonlocal version
        version += 1
        asked.append(held)
        return version, payload(version)

    variables = remote(fetch)
    wait_until(lambda: variables.version == 1)
    for taken in (1, 2, 3):
        assert asked == [-1, *range(1, taken)]
        held, _ = variables.held()
        assert held == taken
        wait_until(lambda expected=taken: variables.version == expected + 1)
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
        with pytest.raises(RuntimeError, match="can't be fetched any more") as raised:
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
        return held, None

    before = set(threading.enumerate())
    variables = remote(fetch)
    (thread,) = set(threading.enumerate()) - before
    wait_until(lambda: len(asked) > 2)
    variables.close()
    wait_until(lambda: not thread.is_alive())


def test_the_server_is_told_the_runs_steps():
    sent, fields = [], dict.fromkeys(Reply._fields)
    call = types.SimpleNamespace(begin=lambda *given: sent.append(given), end=lambda: tuple(fields.values()))
    remote, timestep = RemoteInference(call, with_state=False), dm_env.restart(np.zeros((1, 2)))
    remote.step(7, timestep)
    remote.begin(9, timestep)
    remote.step(9, timestep)
    assert [given[:3] for given in sent] == [("act", 0, 7), ("act", 1, 9)]
