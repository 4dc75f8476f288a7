"""The Ray actor that stands for a node on the host where Ray has put it. It imports nothing heavy."""

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

_IDLE_S = 5.0  # after which a question for events is answered though there are none


@dataclasses.dataclass(frozen=True)
class Visit:
    """What an agent is told when it has arrived.

    Attributes:
        run: names this start of the program, on every host.
        path: where modules are found beside the interpreter's own folders: relative to the code that has travelled
            along, or absolute, for hosts that have such a folder too.
        token: a file that is there where the run directory's parent is the driver's.
        environment: variables that all nodes have as the driver has them; None for one that it hasn't.
    """

    run: str
    path: Sequence[str]
    token: str
    environment: Mapping[str, str | None]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an agent is.

    Attributes:
        host: Ray's number of the host.
        ip: the address at which other hosts reach it.
        shared: whether the run directory there is the driver's.
        scratch: a folder of the host, for logs where the run directory is not.
        niceness: of the processes there.
    """

    host: str
    ip: str
    shared: bool
    scratch: pathlib.Path
    niceness: int


class Agent:
    """Reserves ports, has its node started by the host's nursery, and tells what becomes of it."""

    def __init__(self):
        self._reserved: list[socket.socket] = []
        self._events: list[tuple] = []
        self._forgotten = 0  # events before these
        self._news = threading.Condition()
        self._connection: Connection | None = None
        self._sending = threading.Lock()
        self._run = ""
        self._usage: Usage | None = None

    def place(self, visit: Visit) -> Place:
        """Arrives: sees to it that there is a nursery, and tells where this is."""
        import ray

        self._run = visit.run
        host, niceness = ray.get_runtime_context().get_node_id(), _take_back_niceness()
        scratch = nursery.scratch() / f"{visit.run}-{host[:8]}"
        self._connection = nursery.connect(scratch, environment_of(visit.path, visit.environment))
        threading.Thread(target=self._listen, args=(self._connection, scratch), daemon=True).start()
        return Place(host, ray.util.get_node_ip_address(), os.path.exists(visit.token), scratch, niceness)

    def reserve(self, count: int) -> list[int]:
        """Returns ports that nobody else on this host is given as long as this agent lives."""
        while len(self._reserved) < count:
            reserved = socket.socket()
            # Bound and never listening: whoever sets the same option, as gRPC does, may listen on it, now or later.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(("", 0))
            self._reserved.append(reserved)
        return [reserved.getsockname()[1] for reserved in self._reserved[:count]]

    def start(self, order: Order) -> None:
        """Has the node started, on the devices that Ray has given to this agent."""
        if self._usage is None:
            self._usage = Usage(self._run, order.name)
        print(f"what {order.name} prints is in {order.options.log_of(order.name)}", flush=True)  # for the dashboard
        devices = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES")}
        self._send("start", dataclasses.replace(order, environment={**order.environment, **devices}))

    def signal(self, number: int) -> None:
        """Sends the node a signal, if it runs."""
        self._send("signal", number)

    def ask(self, address: str, died: list[str]) -> None:
        """Has the coordinator at an address asked to stop the program; see `Coordinator.request_stop`."""
        self._send("ask", address, died)

    def events(self, heard: int) -> list[tuple]:
        """Returns what has happened but for the first `heard` events, as soon as something has; see
        `launch.cluster.nursery`. It is told again until the next call says that it was heard.

        `("lost", why)` is added where the nursery is gone.
        """
        with self._news:
            self._news.wait_for(lambda: self._forgotten + len(self._events) > heard, _IDLE_S)
            del self._events[: heard - self._forgotten]
            self._forgotten = heard
            return list(self._events)

    def _send(self, *message: Any) -> None:
        assert self._connection is not None
        with self._sending, contextlib.suppress(OSError):  # then `lost` is on its way
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
    """Takes back the niceness that Ray gives its workers, if nobody chose it and it may; returns what is left."""
    niceness = os.nice(0)
    if niceness > 0 and "RAY_worker_niceness" not in os.environ:
        with contextlib.suppress(PermissionError):
            return os.nice(-niceness)
    return niceness


def environment_of(path: Sequence[str], variables: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the variables that a process of this host is started with: its own, those of a `Visit`, and where modules
    are found.
    """
    path = [os.path.abspath(entry) for entry in path if os.path.isdir(entry)]
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    environment: dict[str, str | None] = {**os.environ, **variables}
    environment["PYTHONPATH"] = os.pathsep.join([*path, *given])
    return proxies.bypassed({name: value for name, value in environment.items() if value is not None})


def exists(file: str) -> bool:
    """Returns whether there is such a file on a host."""
    return os.path.exists(file)
