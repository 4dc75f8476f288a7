"""The Ray actor that represents a node on the node's host. It imports nothing heavy."""

import contextlib
import dataclasses
import os
import pathlib
import socket
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from acme_ext.launch.cluster import nursery
from acme_ext.launch.cluster.nursery import Order
from acme_ext.launch.cluster.usage import Usage
from acme_ext.utils import proxies

_IDLE_S = 5.0  # longest wait for events before an empty answer


@dataclasses.dataclass(frozen=True)
class Visit:
    """The information that an agent receives when it starts on its host.

    Attributes:
        run: name of this start of the program, on every host.
        path: folders of modules, besides the interpreter's own: relative to the code that Ray copies to the host, or
            absolute, for hosts that have the same folder.
        token: a file that exists if the host shares the parent of the driver's run directory.
        environment: variables that all nodes take from the driver; None for one that is not set there.
    """

    run: str
    path: Sequence[str]
    token: str
    environment: Mapping[str, str | None]


@dataclasses.dataclass(frozen=True)
class Place:
    """The location of an agent.

    Attributes:
        host: Ray's ID of the host.
        ip: the address at which other hosts reach it.
        shared: whether the host shares the driver's run directory.
        scratch: a folder of the host, for logs if the run directory is not shared.
        niceness: the niceness of the agent's process.
    """

    host: str
    ip: str
    shared: bool
    scratch: pathlib.Path
    niceness: int


class Agent:
    """Reserves ports, lets the host's nursery start its node, and reports the node's events."""

    def __init__(self):
        self._reserved: list[socket.socket] = []
        self._events: list[tuple] = []
        self._forgotten = 0  # number of events that were removed from the list
        self._news = threading.Condition()
        self._connection: Connection | None = None
        self._sending = threading.Lock()
        self._run = ""
        self._usage: Usage | None = None

    def place(self, visit: Visit) -> Place:
        """Connects to the host's nursery, starting one if necessary, and returns the agent's location."""
        import ray

        self._run = visit.run
        host, niceness = ray.get_runtime_context().get_node_id(), _take_back_niceness()
        scratch = nursery.scratch() / f"{visit.run}-{host[:8]}"
        self._connection = nursery.connect(scratch, environment_of(visit.path, visit.environment))
        threading.Thread(target=self._listen, args=(self._connection, scratch), daemon=True).start()
        return Place(host, ray.util.get_node_ip_address(), os.path.exists(visit.token), scratch, niceness)

    def reserve(self, count: int) -> list[int]:
        """Returns ports that no other process on this host gets as long as this agent lives."""
        while len(self._reserved) < count:
            reserved = socket.socket()
            # Bound, but never listening. A process that sets the same option, as gRPC does, can still listen there.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(("", 0))
            self._reserved.append(reserved)
        return [reserved.getsockname()[1] for reserved in self._reserved[:count]]

    def start(self, order: Order) -> None:
        """Starts the node, on the devices that Ray assigned to this agent."""
        if self._usage is None:
            self._usage = Usage(self._run, order.name)
        print(f"what {order.name} prints is in {order.options.log_of(order.name)}", flush=True)  # for Ray's UI
        devices = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES")}
        self._send("start", dataclasses.replace(order, environment={**order.environment, **devices}))

    def signal(self, number: int) -> None:
        """Sends the node a signal, if it is running."""
        self._send("signal", number)

    def ask(self, address: str, died: list[str]) -> None:
        """Asks the coordinator at an address to stop the program; see `Coordinator.request_stop`."""
        self._send("ask", address, died)

    def events(self, heard: int) -> list[tuple]:
        """Waits for new events and returns those after the first `heard`; see `launch.cluster.nursery`.

        It returns after some seconds even if there are none. It returns events again until the next call confirms them
        with `heard`. `("lost", why)` means that the nursery has ended.
        """
        with self._news:
            self._news.wait_for(lambda: self._forgotten + len(self._events) > heard, _IDLE_S)
            del self._events[: heard - self._forgotten]
            self._forgotten = heard
            return list(self._events)

    def _send(self, *message: Any) -> None:
        assert self._connection is not None
        with self._sending, contextlib.suppress(OSError):  # then a `lost` event follows
            self._connection.send(message)

    def _listen(self, connection: Connection, scratch: pathlib.Path) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._add(connection.recv())
        self._add(("lost", nursery.why(scratch)))

    def _add(self, event: tuple) -> None:
        if event[0] == "started":
            print(f"the node is process {event[1]}", flush=True)
            if self._usage is not None:
                self._usage.follow(event[1])
        with self._news:
            self._events.append(event)
            self._news.notify_all()


def _take_back_niceness() -> int:
    """Undoes the niceness that Ray sets by default for its workers, if permitted; returns the niceness."""
    niceness = os.nice(0)
    if niceness > 0 and "RAY_worker_niceness" not in os.environ:
        with contextlib.suppress(PermissionError):
            return os.nice(-niceness)
    return niceness


def environment_of(path: Sequence[str], variables: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the environment variables for a process: this process's own, those of a `Visit`, and PYTHONPATH."""
    path = [os.path.abspath(entry) for entry in path if os.path.isdir(entry)]
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    environment: dict[str, str | None] = {**os.environ, **variables}
    environment["PYTHONPATH"] = os.pathsep.join([*path, *given])
    return proxies.bypassed({name: value for name, value in environment.items() if value is not None})


def exists(file: str) -> bool:
    """Returns whether a file exists on this host."""
    return os.path.exists(file)
