"""The learner's node, with a learner, a coordinator and checkpoints of the test's own."""

import contextlib
import threading
import types
from concurrent import futures

import pytest

from acme_ext.errors import RunError
from acme_ext.launch.engines.program.nodes import learner as nodes_learner
from acme_ext.launch.engines.program.nodes.learner import LearnerNode
from acme_ext.launch.engines.program.nodes.reports import Orders


class Learner:
    calls = steps = 0

    def __init__(self, on_step):
        self._on_step = on_step

    def step(self):
        self.steps += 1
        self._on_step(self.steps)

    def check(self):
        pass

    def save(self):
        return self.steps


class Checkpoints:
    """Saves that take as long as the test wants."""

    def __init__(self):
        self.saved, self.begun, self.go_on, self.error = [], threading.Event(), threading.Event(), None

    def due(self):
        return not self.begun.is_set()

    def save(self, steps, contents, *, last):
        self.begun.set()
        assert last or self.go_on.wait(30)
        if self.error is not None:
            raise self.error
        self.saved.append((contents.trees["learner"], contents.state["counts"]["learner_steps"], last))


class Around:
    """The coordinator, the reporter and the replay."""

    def __init__(self):
        self.stop, self.counts = False, {}

    def snapshot(self):
        return {"counts": {"environment_steps": 7}}

    def report(self, state):
        return Orders(self.stop, 7)

    def row(self, label, row):
        pass


@pytest.fixture
def node(monkeypatch):
    monkeypatch.setattr(nodes_learner.lp, "wait_for_stop", lambda timeout_s: False)
    made = LearnerNode.__new__(LearnerNode)
    made._coordinator = made._reporter = made._remote = Around()
    made._checkpoints, made._saving = Checkpoints(), None
    made._pool = futures.ThreadPoolExecutor(1)
    made._log, made._snapshots, made._drawn = lambda: None, None, {}
    made._is_over = lambda: False
    made._experiment = types.SimpleNamespace(step_key="environment_steps")
    return made


def test_the_learner_learns_while_a_checkpoint_is_written_and_the_last_comes_after_it(node):
    def on_step(step):
        if step == 50:  # the save that began at step 1 is still under way
            assert node._checkpoints.saved == []
            node._checkpoints.go_on.set()
            node._coordinator.stop = True

    node._learner = Learner(on_step)
    node._learn_and_save()
    (first, first_steps, is_last), last = node._checkpoints.saved
    assert first == first_steps < 50  # one moment's, whatever is learned meanwhile
    assert not is_last
    assert last == (50, 50, True)


def test_a_checkpoint_that_can_not_be_written_ends_the_learner(node):
    node._checkpoints.error = RunError("the disk is full")
    node._checkpoints.go_on.set()
    node._learner = Learner(lambda step: None)
    node._close = lambda: None
    with pytest.raises(RunError, match="the disk is full"):
        node._learn_and_save()


def test_a_checkpoint_is_saved_while_the_learner_waits_for_a_batch(node, monkeypatch):
    waits = []

    class Table:
        def batches(self, calls, *, on_wait):
            waits.append(on_wait)
            return iter(())

    monkeypatch.setattr(nodes_learner, "Shards", lambda batches, calls: types.SimpleNamespace(close=lambda: None))
    node._stack, node._tables = contextlib.ExitStack(), [Table()]
    node._learner = Learner(lambda step: None)
    monkeypatch.setattr(nodes_learner, "RemoteReplay", lambda tables: types.SimpleNamespace(describe=str))
    node._of_replay(types.SimpleNamespace(sgd_steps_per_call=1), None)
    node._checkpoints.go_on.set()
    waits[0]()
    node._saving.result()
    assert node._checkpoints.saved == [(0, 0, False)]
