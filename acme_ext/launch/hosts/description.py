"""Describes a program: its nodes, their addresses and handles, and how they are stopped.

Names and behaviour are those of Launchpad, as far as programs of this package use them. `launchpad` gives these where
Launchpad is not installed.
"""

import _thread
import abc
import contextlib
import enum
import functools
import itertools
import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tree

from acme_ext.launch.hosts.remote_methods import Client, Server
from acme_ext.utils import ports
from acme_ext.utils.calls import TOKEN_BYTES

_here = threading.local()  # `context` and `manager` of the node that this thread runs
_request_end: Callable[[], None] | None = None  # asks for the end of the program, in a process of one node


# Contexts ----------------------------------------------------------------------------------------------------------


class LaunchType(enum.Enum):
    """How nodes are launched."""

    LOCAL_MULTI_THREADING = "local_mt"
    LOCAL_MULTI_PROCESSING = "local_mp"
    TEST_MULTI_PROCESSING = "test_mp"
    TEST_MULTI_THREADING = "test_mt"


class LaunchContext:
    """How a node is launched, which its launcher sets."""

    def __init__(self):
        self._set: tuple[LaunchType, Any, Callable[[], None] | None] | None = None

    def initialize(
        self, launch_type: LaunchType, launch_config: Any, program_stopper: Callable[[], None] | None = None
    ) -> None:
        self._set = launch_type, launch_config, program_stopper

    @property
    def launch_type(self) -> LaunchType:
        return self._get()[0]

    @property
    def launch_config(self) -> Any:
        return self._get()[1]

    @property
    def program_stopper(self) -> Any:
        return self._get()[2]

    def _get(self) -> tuple[LaunchType, Any, Callable[[], None] | None]:
        if self._set is None:
            raise RuntimeError("the launcher of this node has not initialized its context")
        return self._set


def get_context() -> LaunchContext:
    """Returns the context of the node that runs in this thread."""
    return _of_this_thread("context")


# Addresses ---------------------------------------------------------------------------------------------------------


class AbstractAddressBuilder(abc.ABC):
    """Makes the text of an address."""

    @abc.abstractmethod
    def build(self) -> str:
        """Returns the address as `host:port`."""


class SimpleLocalAddressBuilder(AbstractAddressBuilder):
    """An address on this machine, whose port is reserved for as long as this object exists."""

    def __init__(self):
        self._reserved = ports.reserve()

    def build(self) -> str:
        return f"localhost:{self._reserved.getsockname()[1]}"


class Address:
    """An address of a node, which the node's launcher binds to a host and a port."""

    def __init__(self, name: str | None = None):
        self.name = name
        self._builder: AbstractAddressBuilder | None = None

    def bind(self, address_builder: AbstractAddressBuilder) -> None:
        self._builder = address_builder

    def resolve(self) -> str:
        """Returns the address as `host:port`."""
        if self._builder is None:
            raise RuntimeError(f"the address {self.name!r} is not bound: a node's launcher has to do it")
        return self._builder.build()

    def assign(self, node: "Node") -> None:
        """Makes this an address of a node."""
        node.addresses.append(self)


def get_port_from_address(address: str) -> int:
    return int(address.rpartition(":")[2])


# Nodes and handles -------------------------------------------------------------------------------------------------


class Handle:
    """Stands for a node in the arguments of other nodes; in those nodes, a client takes its place."""

    def dereference(self) -> Any:
        """Returns the client."""
        raise NotImplementedError("this node can't be called by other nodes")

    def connect(self, node: "Node", label: str) -> None:
        """Called by the launcher for every node that has this handle."""


class Node(abc.ABC):
    """A node of a program.

    Attributes:
        addresses: the addresses at which others call it.
        launch_context: how it is launched.
    """

    def __init__(self):
        self.addresses: list[Address] = []
        self.launch_context = LaunchContext()
        self._input_handles: list[Handle] = []

    @property
    def input_handles(self) -> list[Handle]:
        """The handles among its arguments."""
        return list(self._input_handles)

    @abc.abstractmethod
    def create_handle(self) -> Any:
        """Returns a handle of this node."""

    def allocate_address(self, address: Address) -> None:
        address.assign(self)

    def bind_addresses(self) -> None:
        """Binds its addresses to free ports of this machine."""
        for address in self.addresses:
            address.bind(SimpleLocalAddressBuilder())

    def _track_handle(self, handle: Any) -> Any:
        """Returns the handle. Nodes call it when they create one, as Launchpad demands."""
        return handle


class PyNode(Node):
    """Runs a function. Handles in its arguments, also in lists, tuples and dicts, become clients."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, **named: Any):
        super().__init__()
        self._function = function
        self._set_arguments(arguments, named)

    @property
    def function(self) -> Callable[[], Any]:
        """Runs the node; called in its own process or thread."""
        return self._run_function

    def create_handle(self) -> Any:
        return Handle()

    def _set_arguments(self, arguments: tuple, named: dict[str, Any]) -> None:
        self._arguments = arguments, named
        self._input_handles = [leaf for leaf in tree.flatten(self._arguments) if isinstance(leaf, Handle)]

    def _call(self, function: Callable[..., Any]) -> Any:
        """Calls a function with the node's arguments."""
        given: Any = tree.map_structure(
            lambda leaf: leaf.dereference() if isinstance(leaf, Handle) else leaf, self._arguments
        )
        arguments, named = given
        return function(*arguments, **named)

    def _run_function(self) -> Any:
        _here.context = self.launch_context
        return self._call(self._function)


class PyClassNode(PyNode):
    """Makes an object and calls its method `run`, if it has one."""

    def _run_function(self) -> Any:
        _here.context = self.launch_context
        self._run_instance(self._call(self._function))

    def _run_instance(self, instance: Any) -> None:
        if hasattr(instance, "run"):
            instance.run()


class CourierHandle(Handle):
    """A handle of a `CourierNode`, which becomes a `remote_methods.Client`."""

    def __init__(self, address: Address, token: bytes):
        self._address, self._token = address, token
        self._named: dict[str, Any] = {}

    def set_client_kwargs(self, **named: Any) -> None:
        """Sets keyword arguments of the client."""
        self._named = named

    def dereference(self) -> Client:
        manager = getattr(_here, "manager", None)  # there is none outside of nodes
        stopped = None if manager is None else manager.stop_event()
        return Client(self._address.resolve(), self._token, stopped=stopped, **self._named)


class CourierNode(PyClassNode):
    """Makes an object, whose public methods other nodes can call until its method `run` returns.

    Without such a method, they can call it until the program is stopped. Each node has a secret token, which its
    handles carry.
    """

    def __init__(self, constructor: Callable[..., Any], *arguments: Any, **named: Any):
        super().__init__(constructor, *arguments, **named)
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._address = Address("courier")
        self.allocate_address(self._address)

    @property
    def courier_address(self) -> Address:
        return self._address

    def configure(self, *arguments: Any, **named: Any) -> None:
        """Sets the arguments, for those that depend on the node itself."""
        self._set_arguments(arguments, named)

    def create_handle(self) -> Any:
        return self._track_handle(CourierHandle(self._address, self._token))

    def _run_instance(self, instance: Any) -> None:
        host, _, port = self._address.resolve().rpartition(":")
        with contextlib.closing(Server(instance, self._token, host, int(port))):
            if hasattr(instance, "run"):
                instance.run()
            else:
                wait_for_stop()


class Program:
    """The nodes of a program, in groups."""

    def __init__(self, name: str):
        self.name = name
        self.groups: dict[str, list[Node]] = {}
        self._group: str | None = None

    @contextlib.contextmanager
    def group(self, label: str) -> Iterator[None]:
        """Adds the nodes that are added inside this context to a group."""
        if not label:
            raise ValueError("a group needs a name")
        if self._group is not None:
            raise ValueError(f"the group {label!r} can't be inside the group {self._group!r}")
        self._group = label
        try:
            yield
        finally:
            self._group = None

    def add_node(self, node: Node, label: str | None = None) -> Any:
        """Adds a node and returns a handle of it."""
        if self._group is not None and label not in (None, self._group):
            raise ValueError(f"a node of the group {self._group!r} can't be labelled {label!r}")
        if not (label := self._group or label):
            raise ValueError("add a node inside a group, or give its label")
        self.groups.setdefault(label, []).append(node)
        return node.create_handle()

    def get_all_nodes(self) -> list[Node]:
        return list(itertools.chain.from_iterable(self.groups.values()))


# How nodes stop ----------------------------------------------------------------------------------------------------


class Manager:
    """Tells the nodes of a process when to stop."""

    def __init__(self):
        self._stop = threading.Event()

    def stop_event(self) -> threading.Event:
        return self._stop

    def thread_worker(self, name: str, function: Callable[[], Any]) -> None:
        """Runs a node in a thread."""

        def run() -> None:
            _here.manager = self
            function()

        threading.Thread(target=run, name=name, daemon=True).start()


def manage_process(request_end: Callable[[], None]) -> Callable[[], None]:
    """Prepares a process, in its main thread, for running one node.

    Args:
        request_end: asks for the end of the program after a last save.

    Returns:
        A function that tells the node to stop, for a signal handler.
    """
    global _request_end
    _request_end = request_end
    _here.manager = manager = Manager()

    def stop_node() -> None:
        # A signal handler interrupts the main thread, which may hold the lock of the event.
        _thread.start_new_thread(manager.stop_event().set, ())

    return stop_node


def manage_threads() -> Manager:
    """Returns the manager of nodes that are threads of this process."""
    return Manager()


def stop_event() -> threading.Event:
    """Returns an event that is set when the node of this thread must stop."""
    return _of_this_thread("manager").stop_event()


def wait_for_stop(timeout_secs: float | None = None) -> bool:
    """Waits until the node of this thread must stop, or for `timeout_secs`; returns whether it must stop."""
    return stop_event().wait(timeout_secs)


def stop() -> None:
    """Ends the program, from the thread of a node."""
    get_context().program_stopper()


def make_program_stopper(launch_type: str | LaunchType) -> Callable[..., None]:
    """Returns a function that ends the program after a last save; make it in a node, or where the program is made."""
    LaunchType(launch_type)
    return functools.partial(_end_program_of, os.getpid())


def _end_program_of(pid: int, mark_as_completed: bool = False) -> None:
    del mark_as_completed
    if pid == os.getpid() and _request_end is not None:
        _request_end()
    else:
        os.kill(pid, signal.SIGTERM)


def _of_this_thread(name: str) -> Any:
    if (found := getattr(_here, name, None)) is None:
        raise RuntimeError(f"this thread has no {name}: only the own thread of a program's node has one")
    return found
