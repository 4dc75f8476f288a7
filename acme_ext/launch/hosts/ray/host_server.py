"""The fork server of a host: it forks nodes for the proxies there.

A proxy can't be forked, since it has Ray's threads. So the first proxy of a run on a host starts the server, which
imports everything once. Each proxy then asks it, over a connection, to fork its node. When the connection closes, the
server kills the node. When the last connection closes, the server ends, and so do all processes that the nodes have
left behind.

The messages are tuples. From a proxy: `("start", StartCommand)`, `("signal", number)` and `("ask", handle, died)`,
which asks the coordinator to stop the program. To a proxy: `("started", pid)`; `("said", bytes)`, the node's output to
the terminal; `("stop",)` if the coordinator called `lp.stop()`; `("request",)` if another node did; `("unanswered",)`
if the coordinator did not answer; and `("ended", code, end of its log)`.
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait

from acme_ext.launch.hosts import process_tree, subreaper
from acme_ext.launch.hosts.fork_server import ForkServer, import_libraries, log_tail
from acme_ext.launch.hosts.node_process import Options
from acme_ext.launch.roles import NodeId
from acme_ext.utils import system

_LOOK_S = 0.02
_LONELY_S = 60.0  # without any proxy, before the server ends
_CHUNK = 65536


@dataclasses.dataclass(frozen=True)
class StartCommand:
    """A command to start a node.

    Attributes:
        node: the node, pickled by cloudpickle; it is unpickled in its own process, with its imports.
        id: the node's identity.
        options: see `Options`; the log folder is on this host.
        environment: variables of its process; None unsets a variable.
        columns: the width of the user's terminal; 0 if the output is not a terminal.
    """

    node: bytes
    id: NodeId
    options: Options
    environment: Mapping[str, str | None]
    columns: int = 0


def connect(folder: pathlib.Path, environment: Mapping[str, str]) -> Connection:
    """Returns a connection to this host's server for a run; starts one if there is none yet.

    Args:
        folder: the run's folder on this host.
        environment: environment variables of the server; PYTHONPATH has the folders of its modules.
    """
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    if folder.parent.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder.parent} is somebody else's")  # anybody with write access could run code
    with _locked(folder):
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(_socket_of(folder))
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_socket_of(folder))
            _start(folder, environment)
            client.connect(_socket_of(folder))
    return Connection(client.detach())


def _socket_of(folder: pathlib.Path) -> str:
    return str(folder / "server.sock")


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """Makes a run's folder, and locks its parent for as long as a server is looked for, started or ended."""
    lock = os.open(folder.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder.mkdir(mode=0o700, exist_ok=True)
        yield
    finally:
        os.close(lock)


def scratch() -> pathlib.Path:
    """Returns the parent of the folders of runs on a host; a short path, since socket paths have a limit."""
    return pathlib.Path(f"/tmp/acme-ext-{os.getuid()}")


def clear(folder: pathlib.Path) -> None:
    """Removes a run's folder on a host, except the logs of nodes, unless a server uses it."""
    with _locked(folder):
        with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
            client.connect(_socket_of(folder))
            return
        for name in ("server.sock", "server.log"):
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()


def why(folder: pathlib.Path) -> str:
    """Returns the last output of a server."""
    return log_tail(folder / "server.log", 0)


def _start(folder: pathlib.Path, environment: Mapping[str, str]) -> None:
    with socket.socket(socket.AF_UNIX) as server, (folder / "server.log").open("ab") as log:
        server.bind(_socket_of(folder))
        server.listen(4096)  # proxies connect before it has finished its imports
        line = [sys.executable, "-m", "acme_ext.launch.hosts.ray.host_server", str(server.fileno()), str(folder)]
        subprocess.run(
            line,
            env=dict(environment),
            pass_fds=[server.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=True,
        )


class HostServer(ForkServer):
    """Forks nodes for proxies, each of which owns a node by its connection; see the module.

    Args:
        server: the socket that proxies connect to.
        folder: the run's folder on this host.
    """

    def __init__(self, server: socket.socket, folder: pathlib.Path):
        super().__init__()
        self._server, self._folder = server, folder
        self._connections: list[Connection] = []
        self._terminals: dict[int, Connection] = {}  # a descriptor to read a node's output to the user from -> owner
        self._stopped = self._requested = False

    def run(self) -> None:
        """Serves proxies until the last one has disconnected."""
        signal.signal(signal.SIGUSR2, self._on_stop)
        signal.signal(process_tree.REQUESTS[signal.SIGTERM], self._on_stop_request)
        alone_since = time.monotonic()
        while True:
            ready: list = wait([self._server, *self._connections, *self._terminals], _LOOK_S)
            for source in ready:
                if source is self._server:
                    self._connections.append(Connection(self._server.accept()[0].detach()))
                elif isinstance(source, Connection):
                    self._serve(source)
                else:
                    self._relay(source)
            self._tell_events()
            lonely = not self._connections and (ready or time.monotonic() - alone_since > _LONELY_S)
            if lonely and self._closes():
                return

    def _closes(self) -> bool:
        """Stops listening, unless another proxy has connected; later ones start a server of their own.

        Large nodes take seconds to end, and a proxy that connected in this time would be lost with this server.
        """
        with _locked(self._folder):
            if wait([self._server], 0):
                return False
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_socket_of(self._folder))
            self._server.close()
            return True

    def _on_stop(self, number: int, frame: object) -> None:
        self._stopped = True

    def _on_stop_request(self, number: int, frame: object) -> None:
        self._requested = True

    def _serve(self, connection: Connection) -> None:
        """Obeys a proxy; kills the node of one that has disconnected."""
        try:
            what, *arguments = connection.recv()
        except (EOFError, OSError):
            self._connections.remove(connection)
            connection.close()
            self.signal(connection, signal.SIGKILL)
            return
        {"start": self._start, "signal": self.signal, "ask": self._ask}[what](connection, *arguments)

    def _start(self, connection: Connection, command: StartCommand) -> None:
        terminal, theirs = _open_terminal(command.columns)
        inherited = (terminal, theirs, self._server.fileno(), *(c.fileno() for c in self._connections))

        def prepare() -> None:
            os.dup2(theirs, 2)
            for descriptor in inherited:
                os.close(descriptor)
            for name, value in command.environment.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})

        def function() -> None:
            import cloudpickle

            cloudpickle.loads(command.node).function()

        pid = self.fork(connection, function, command.id, command.options, prepare)
        os.close(theirs)
        self._terminals[terminal] = connection
        _tell(connection, "started", pid)

    def _ask(self, connection: Connection, handle: bytes, died: list[str]) -> None:
        import cloudpickle

        self.ask(connection, cloudpickle.loads(handle), died)

    def _relay(self, terminal: int, *, last: bool = False) -> None:
        """Passes on a node's output to the user; closes the terminal if it has no writers any more, or if `last`."""
        try:
            while text := os.read(terminal, _CHUNK):
                _tell(self._terminals[terminal], "said", text)
        except BlockingIOError:
            if not last:
                return
        except OSError:  # it has no writers any more
            pass
        os.close(terminal)
        del self._terminals[terminal]

    def _tell_events(self) -> None:
        ended = self.reap()
        if self._stopped:  # before the event that the coordinator has ended
            self._stopped = False
            for connection in self._connections:
                _tell(connection, "stop")
        if self._requested:
            self._requested = False
            for connection in self._connections[:1]:  # one proxy is enough
                _tell(connection, "request")
        for connection, (what, *details) in ended:
            if what == "ended":
                # A process that the node started may still have its terminal open.
                for terminal in [terminal for terminal, owner in self._terminals.items() if owner is connection]:
                    self._relay(terminal, last=True)
                code, words = details
                details = [code, words() if code else ""]
            _tell(connection, what, *details)


def _tell(connection: Connection, *message: object) -> None:
    with contextlib.suppress(OSError):  # the proxy has disconnected; `recv` will notice
        connection.send(message)


def _open_terminal(columns: int) -> tuple[int, int]:
    """Returns a non-blocking descriptor to read from and one to write to, of a terminal or a pipe."""
    if columns:
        ours, theirs = os.openpty()
        mode = termios.tcgetattr(theirs)
        mode[1] &= ~termios.OPOST  # the user's terminal does it
        termios.tcsetattr(theirs, termios.TCSANOW, mode)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    else:
        ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    return ours, theirs


def main(descriptor: int, folder: pathlib.Path) -> None:
    """Runs the server below a process that only cleans up after it; see `hosts.process_tree`."""

    def serve(parent: int) -> int:
        system.adopt_orphans()
        signal.signal(process_tree.ORPHANED, process_tree.abandon)
        if system.signal_at_parents_end(parent, process_tree.ORPHANED):
            import_libraries()
            try:
                HostServer(socket.socket(fileno=descriptor), folder).run()
            finally:
                process_tree.end_children()
        return 0

    if os.fork():
        os._exit(0)  # detaches, since it outlives the proxy that started it
    if subreaper.guard(serve, descriptor) == 0:
        clear(folder)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
