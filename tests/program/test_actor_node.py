"""The actor's node, with a loop and a coordinator of the test's own."""

import contextlib
import types

import pytest

from acme_ext.launch.engines.program.nodes import actor as nodes_actor
from acme_ext.launch.engines.program.nodes.actor import ActorNode
from acme_ext.launch.engines.program.nodes.reports import UNWRITTEN, Orders


class Reporter:
    def __init__(self):
        self.orders, self.reported, self.states = Orders(False, 0), {}, []
        self.counts = {"environment_steps": 0, UNWRITTEN: 1}

    def report(self, state, *, now=False):
        self.states.append((state, dict(self.counts)))
        return self.orders


def fail():
    raise ValueError("on purpose")


@pytest.mark.parametrize("closes", [True, False])
def test_after_an_error_the_program_does_not_wait_for_recorded_episodes(monkeypatch, closes):
    monkeypatch.setattr(nodes_actor.lp, "wait_for_stop", lambda timeout_s: False)
    node, closed = ActorNode.__new__(ActorNode), []
    actor = types.SimpleNamespace(environment_steps=0)
    node._parts = [types.SimpleNamespace(loop=types.SimpleNamespace(step=fail), actor=actor)]
    node._reporter, node._stack = Reporter(), contextlib.ExitStack()
    node._stack.callback(lambda: closed.append(True) if closes else fail())
    with pytest.raises(ValueError, match="on purpose"):
        node.run()
    assert closed == [True] * closes
    state, counts = node._reporter.states[-1]
    assert (state, counts[UNWRITTEN]) == ("has ended", 0)
