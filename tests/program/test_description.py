"""The description of programs where Launchpad is not installed, beside Launchpad's own."""

import pickle
import queue
import threading

import cloudpickle
import launchpad as lp
import pytest
from launchpad import context
from launchpad.nodes import base

from acme_ext.launch.hosts import description
from acme_ext.launch.hosts import launchpad as door

_PATIENCE_S = 60
_OWN = [name for name in vars(description) if name in vars(door) and not name.startswith("_") and name[0].isupper()]


class Counter:
    """A node that others call."""

    def __init__(self, start):
        self._count = start

    def add(self, number):
        self._count += number
        return self._count


class Adder:
    """A node that calls others until it has added enough."""

    def __init__(self, counters, told, ended):
        self._counters, self._told, self._ended = counters, told, ended

    def run(self):
        for counter in self._counters["all"]:
            self._told.put(counter.add(2))
        self._ended()


class Kept:
    """An argument that nothing looks into."""

    def __init__(self, value):
        self.value = value


def _described(module, told):
    """Returns a program of two counters and a node that calls them."""
    program = module.Program("test")
    with program.group("counter"):
        counters = [program.add_node(module.CourierNode(Counter, start)) for start in (10, 20)]
    put = Kept(told)
    adder = module.PyNode(lambda all, kept: Adder({"all": all}, kept.value, lambda: None).run(), counters, kept=put)
    handle = program.add_node(adder, label="adder")
    assert program.get_all_nodes() == [*program.groups["counter"], adder]
    assert adder.input_handles == counters
    with pytest.raises(NotImplementedError):
        handle.dereference()
    return program


def _run(module, launch_type, manager, program, stop):
    for nodes in program.groups.values():
        for node in nodes:
            node.launch_context.initialize(launch_type, "in order", stop)
            for handle in node.input_handles:
                handle.connect(node, "label")
    for node in program.get_all_nodes():
        node.bind_addresses()
    for label, nodes in program.groups.items():
        for node in nodes:
            manager.thread_worker(label, node.function)


@pytest.mark.parametrize(
    ("module", "launch_type", "make_manager"),
    [
        (lp, context.LaunchType.LOCAL_MULTI_THREADING, door.manage_threads),
        (description, description.LaunchType.LOCAL_MULTI_THREADING, description.manage_threads),
    ],
    ids=["launchpad", "own"],
)
def test_nodes_call_each_other_and_are_stopped(module, launch_type, make_manager):
    told, manager = queue.Queue(), make_manager()
    program = _described(module, told)
    ended = threading.Event()

    def end():
        manager.stop_event().set()
        ended.set()

    def wait():
        assert not module.wait_for_stop(0)
        module.stop()
        assert module.wait_for_stop(_PATIENCE_S)
        told.put(module.stop_event().is_set())

    _run(module, launch_type, manager, program, end)
    assert sorted(told.get(timeout=_PATIENCE_S) for _ in range(2)) == [12, 22]
    waiting = module.Program("waits")
    waiting.add_node(module.PyNode(wait), label="waits")
    _run(module, launch_type, manager, waiting, end)
    assert told.get(timeout=_PATIENCE_S)
    assert ended.is_set()


@pytest.mark.parametrize("module", [lp, description], ids=["launchpad", "own"])
def test_groups_are_refused_as_launchpad_refuses_them(module):
    program, node = module.Program("test"), module.PyNode(print)
    with pytest.raises(ValueError, match=r"(?i)label|name"), program.group(""):
        pass
    with pytest.raises(ValueError, match=r"nested|inside"), program.group("a"), program.group("b"):
        pass
    with pytest.raises(ValueError, match=r"(?i)label"):
        program.add_node(node)
    with pytest.raises(ValueError, match="label"), program.group("a"):
        program.add_node(node, label="b")
    with program.group("a"):
        program.add_node(node, label="a")
    assert program.groups == {"a": [node]}


@pytest.mark.parametrize("module", [lp, description], ids=["launchpad", "own"])
def test_what_only_a_launcher_or_a_node_has_is_missing_elsewhere(module):
    node = module.CourierNode(Counter, 1)
    with pytest.raises(RuntimeError):
        node.courier_address.resolve()
    with pytest.raises(RuntimeError):
        _ = node.launch_context.launch_type
    with pytest.raises(RuntimeError):
        module.wait_for_stop(0)


def test_a_node_and_its_handles_can_be_sent_to_another_host():
    class Fixed(description.AbstractAddressBuilder):
        def build(self):
            return "10.0.0.1:42"

    node = description.CourierNode(Counter, 1)
    node.courier_address.bind(Fixed())
    there = cloudpickle.loads(cloudpickle.dumps(node))
    assert there.courier_address.resolve() == "10.0.0.1:42"
    assert description.get_port_from_address("10.0.0.1:42") == 42
    handle = cloudpickle.loads(cloudpickle.dumps(node.create_handle()))
    handle.set_client_kwargs(call_timeout=1.0)
    client = handle.dereference()
    assert (client.address, client._token) == ("10.0.0.1:42", node._token)
    assert description.CourierNode(Counter, 1)._token != node._token


@pytest.mark.parametrize("name", ["AbstractAddressBuilder", "Address", "CourierHandle", "CourierNode", "Program"])
def test_the_same_names_have_the_same_methods(name):
    own, real = getattr(description, name), getattr(door, name)
    methods = {each for each, value in vars(own).items() if callable(value) and not each.startswith("_")}
    assert methods <= set(dir(real))


def test_all_names_are_those_of_launchpad():
    assert door.INSTALLED
    assert {"Program", "PyNode", "PyClassNode", "CourierNode", "Handle", "Address", "LaunchType"} <= set(_OWN)
    assert door.Handle is base.Handle
    for name in ("get_context", "stop", "stop_event", "wait_for_stop", "make_program_stopper"):
        assert callable(getattr(door, name))
        assert callable(getattr(description, name))
    assert pickle.loads(pickle.dumps(description.LaunchType("local_mt"))) is description.LaunchType("local_mt")
