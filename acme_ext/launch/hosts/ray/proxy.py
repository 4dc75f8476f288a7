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

from acme_ext.launch.hosts.ray import host_server
from acme_ext.launch.hosts.ray.host_server import StartCommand
from acme_ext.launch.hosts.ray.usage import Usage
from acme_ext.utils import ports, proxies

_IDLE_S = 5.0  # longest wait for events before an empty answer


@dataclasses.dataclass(frozen=True)
class HostContext:
    """The information that a proxy receives when it starts on its host.

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
    """The location of a proxy.

    Attributes:
        host: Ray's ID of the host.
        ip: the address at which other hosts reach it.
        shared: whether the host shares the driver's run directory.
        scratch: a folder of the host, for logs if the run directory is not shared.
        niceness: the niceness of the proxy's process.
    """

    host: str
    ip: str
    shared: bool
    scratch: pathlib.Path
    niceness: int


class NodeProxy:
    """Reserves ports, lets the host's fork server start its node, and reports the node's events."""

    def __init__(self):
        self._reserved: list[socket.socket] = []
        self._events: list[tuple] = []
        self._forgotten = 0  # number of events that were removed from the list
        self._news = threading.Condition()
        self._connection: Connection | None = None
        self._sending = threading.Lock()
        self._run = ""
        self._usage: Usage | None = None

    def place(self, context: HostContext) -> Place:
        """Connects to the host's fork server, starting one if necessary, and returns the proxy's location."""
        import ray

        self._run = context.run
        host, niceness = ray.get_runtime_context().get_node_id(), _take_back_niceness()
        scratch = host_server.scratch() / f"{context.run}-{host[:8]}"
        self._connection = host_server.connect(scratch, environment_of(context.path, context.environment))
        threading.Thread(target=self._listen, args=(self._connection, scratch), daemon=True).start()
        return Place(host, ray.util.get_node_ip_address(), os.path.exists(context.token), scratch, niceness)

    def reserve(self, count: int) -> list[int]:
        """Returns ports that no other process on this host gets as long as this proxy lives."""
        while len(self._reserved) < count:
            self._reserved.append(ports.reserve())
        return [reserved.getsockname()[1] for reserved in self._reserved[:count]]

    def start(self, command: StartCommand) -> None:
        """Starts the node, on the devices that Ray assigned to this proxy."""
        if self._usage is None:
            self._usage = Usage(self._run, command.id.name)
        name = command.id.name
        print(f"what {name} prints is in {command.options.log_of(name)}", flush=True)  # for Ray's UI
        devices = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES")}
        self.send("start", dataclasses.replace(command, environment={**command.environment, **devices}))

    def events(self, heard: int) -> list[tuple]:
        """Waits for new events and returns those after the first `heard`; see `launch.hosts.ray.host_server`.

        It returns after some seconds even if there are none. It returns events again until the next call confirms them
        with `heard`. `("lost", why)` means that the server has ended.
        """
        with self._news:
            self._news.wait_for(lambda: self._forgotten + len(self._events) > heard, _IDLE_S)
            del self._events[: heard - self._forgotten]
            self._forgotten = heard
            return list(self._events)

    def send(self, *message: Any) -> None:
        """Sends a message to the fork server, see `host_server`."""
        assert self._connection is not None
        with self._sending, contextlib.suppress(OSError):  # then a `lost` event follows
            self._connection.send(message)

    def _listen(self, connection: Connection, scratch: pathlib.Path) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._add(connection.recv())
        self._add(("lost", host_server.why(scratch)))

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
    """Returns the environment variables for a process: this process's own, those of a `HostContext`, and PYTHONPATH."""
    path = [os.path.abspath(entry) for entry in path if os.path.isdir(entry)]
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    environment: dict[str, str | None] = {**os.environ, **variables}
    environment["PYTHONPATH"] = os.pathsep.join([*path, *given])
    return proxies.bypassed({name: value for name, value in environment.items() if value is not None})
