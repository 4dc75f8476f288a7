"""What a policy carries, in a program: the coordinator keeps it for the actor that is started next."""

from programs import Client

from acme_ext.acting.memories import added
from acme_ext.launch.engines.program.nodes.reports import Reporter
from acme_ext.launch.roles import NodeId


class Core:
    """An inference's core, as far as a reporter knows it."""

    has_memory = True

    def __init__(self):
        self.restored: str | None = None

    def save_memory(self):
        return "packed"

    def shared_statistics(self):
        return [[1.0, 2.0]]

    def restore_memory(self, text):
        self.restored = text


class Coordinator:
    def __init__(self):
        self.calls = []

    def report(self, node, state, counts, rows=()):
        return False, 0, None

    def keep(self, node, name, memory, statistics):
        assert node == "actor 0, start 0"
        self.calls.append((name, memory, statistics))

    def kept(self, name):
        return self.calls[-1][1]


def test_a_memory_is_sent_now_and_then_and_given_back():
    coordinator, core = Coordinator(), Core()
    reporter = Reporter(Client(coordinator), NodeId("actor", 0, 0))
    for _ in range(100):
        reporter.keep(core, "actor 0, part 0")
    assert coordinator.calls == [("actor 0, part 0", "packed", [[1.0, 2.0]])]  # not at every step
    reporter.keep(core, "actor 0, part 0", now=True)
    assert len(coordinator.calls) == 2
    reporter.kept(core, "actor 0, part 0")
    assert core.restored == "packed"


def test_a_policy_without_a_memory_is_never_asked():
    coordinator, core = Coordinator(), Core()
    core.has_memory = False
    reporter = Reporter(Client(coordinator), NodeId("actor", 0, 0))
    for each in (core, None):
        reporter.keep(each, "actor 0, part 0", now=True)
        reporter.kept(each, "actor 0, part 0")
    assert coordinator.calls == []
    assert added([[[1.0]], [[2.0]]]) == [[3.0]]
