"""The nursery: a process of each host that forks nodes for the agents there, as the supervisor does on one machine.

Importing a node's libraries costs seconds of CPU time and 400 MB, and an agent can't be forked, since it has Ray's
threads. So the first agent of a run on a host starts the nursery, which imports everything once. Each agent then asks
it, over a connection, to fork its node. When the connection closes, the nursery kills the node. When the last
connection closes, the nursery ends, and so do all processes that the nodes have left behind.

The messages are tuples. From an agent: `("start", Order)`, `("signal", number)` and `("ask", address, died)`, which
asks the coordinator to stop the program. To an agent: `("started", pid)`; `("said", bytes)`, the node's output to the
terminal; `("stop",)` if the coordinator called `lp.stop()`; `("request",)` if another node did; `("unanswered",)` if
the coordinator did not answer; and `("ended", code, last words)`.
"""

import contextlib
import dataclasses
import fcntl
import mmap
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
import types
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait
from typing import TextIO

from acme_ext.launch.processes import process_tree
from acme_ext.launch.processes.forks import Options, code_of

_LOOK_S = 0.02
_LONELY_S = 60.0  # without any agent, before the nursery ends
_LAST_LINES = 20
_CHUNK = 65536


@dataclasses.dataclass(frozen=True)
class Order:
    """An order to start a node.

    Attributes:
        node: the node, pickled by cloudpickle; it is unpickled in its own process, with its imports.
        group, name: the node's group and name.
        options: see `Options`; the log folder is on this host.
        environment: variables of its process; None unsets a variable.
        columns: the width of the user's terminal; 0 if the output is not a terminal.
    """

    node: bytes
    group: str
    name: str
    options: Options
    environment: Mapping[str, str | None]
    columns: int = 0


def connect(folder: pathlib.Path, environment: Mapping[str, str]) -> Connection:
    """Returns a connection to this host's nursery for a run; starts a nursery if there is none yet.

    Args:
        folder: the run's folder on this host.
        environment: environment variables of the nursery; PYTHONPATH has the folders of its modules.
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
    return str(folder / "nursery.sock")


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """Makes a run's folder, and locks it for as long as a nursery is looked for, started or ended."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            lock = (folder / "lock").open("w")
        except FileNotFoundError:  # another process has just removed the folder
            continue
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_at(lock, folder / "lock"):  # otherwise it was removed during the wait
                yield
                return


def _is_at(file: TextIO, path: pathlib.Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def scratch() -> pathlib.Path:
    """Returns the parent of the folders of runs on a host; a short path, since socket paths have a limit."""
    return pathlib.Path(f"/tmp/acme-ext-{os.getuid()}")


def clear(folder: pathlib.Path) -> None:
    """Removes a run's folder on a host, except the logs of nodes, unless a nursery uses it."""
    with _locked(folder):
        with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
            client.connect(_socket_of(folder))
            return
        for name in ("nursery.sock", "nursery.log", "lock"):
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()


def why(folder: pathlib.Path) -> str:
    """Returns the last output of a nursery."""
    log = folder / "nursery.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return ":\n" + "\n".join(lines[-_LAST_LINES:]) if lines else "."


def stop_program(mark_as_completed: bool = False) -> None:
    """Stops the program; `lp.stop()` calls it in a node."""
    del mark_as_completed
    os.kill(os.getppid(), signal.SIGUSR2)


def _start(folder: pathlib.Path, environment: Mapping[str, str]) -> None:
    with socket.socket(socket.AF_UNIX) as server, (folder / "nursery.log").open("ab") as log:
        server.bind(_socket_of(folder))
        server.listen(4096)  # agents connect before it has finished its imports
        line = [sys.executable, "-m", "acme_ext.launch.cluster.nursery", str(server.fileno()), str(folder)]
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


@dataclasses.dataclass
class _Child:
    """A node and the connection to its agent."""

    connection: Connection
    order: Order
    log_start: int
    terminal: int  # descriptor to read its output to the user from


class Nursery:
    """Forks nodes for agents; see the module.

    Args:
        server: the socket that agents connect to.
        folder: the run's folder on this host.
    """

    def __init__(self, server: socket.socket, folder: pathlib.Path):
        self._server, self._folder = server, folder
        self._connections: list[Connection] = []
        self._children: dict[int, _Child] = {}
        self._asking: dict[int, Connection] = {}
        self._stopped = self._requested = False
        # Always 0: here, a SIGTERM to a node always ends it, see `forks.run_node`.
        self._never = mmap.mmap(-1, 1)

    def run(self) -> None:
        """Serves agents until the last one has disconnected."""
        signal.signal(signal.SIGUSR2, self._on_stop)
        signal.signal(process_tree.REQUESTS[signal.SIGTERM], self._on_stop_request)
        alone_since = time.monotonic()
        while True:
            terminals = {child.terminal: child for child in self._children.values() if child.terminal >= 0}
            ready: list = wait([self._server, *self._connections, *terminals], _LOOK_S)
            for source in ready:
                if source is self._server:
                    self._connections.append(Connection(self._server.accept()[0].detach()))
                elif isinstance(source, Connection):
                    self._serve(source)
                else:
                    self._relay(terminals[source])
            self._reap()
            lonely = not self._connections and (ready or time.monotonic() - alone_since > _LONELY_S)
            if lonely and self._closes():
                return

    def _closes(self) -> bool:
        """Stops listening, unless another agent has connected; later ones start a nursery of their own.

        Large nodes take seconds to end, and an agent that connected in this time would be lost with this nursery.
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
        try:
            what, *arguments = connection.recv()
        except (EOFError, OSError):
            self._forget(connection)
            return
        if what == "start":
            self._fork(connection, *arguments)
        elif what == "ask":
            self._ask(connection, *arguments)
        elif what == "signal":
            for pid, child in self._children.items():
                if child.connection is connection:
                    os.kill(pid, *arguments)

    def _forget(self, connection: Connection) -> None:
        """Kills the node of an agent that has disconnected."""
        self._connections.remove(connection)
        connection.close()
        for pid, child in self._children.items():
            if child.connection is connection:
                os.kill(pid, signal.SIGKILL)

    def _fork(self, connection: Connection, order: Order) -> None:
        from acme_ext.launch.processes.forks import fork, run_node

        order.options.logs.mkdir(parents=True, exist_ok=True)
        log = order.options.log_of(order.name)
        log_start = log.stat().st_size if log.exists() else 0
        terminal, theirs = _open_terminal(order.columns)
        nursery = os.getpid()

        def run() -> int:
            os.dup2(theirs, 2)
            for descriptor in (terminal, theirs, self._server.fileno(), *(c.fileno() for c in self._connections)):
                os.close(descriptor)
            for name, value in order.environment.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})
            node = types.SimpleNamespace(function=lambda: _load(order.node).function())
            return run_node(node, order.group, order.name, nursery, self._never, order.options)

        pid = fork(run)
        os.close(theirs)
        self._children[pid] = _Child(connection, order, log_start, terminal)
        self._tell(connection, "started", pid)

    def _ask(self, connection: Connection, address: str, died: list[str]) -> None:
        from acme_ext.launch.processes.forks import ask_to_stop

        pid = ask_to_stop(address, died)
        self._asking[pid] = connection

    def _relay(self, child: _Child) -> None:
        """Passes on a node's output to the terminal."""
        while True:
            try:
                text = os.read(child.terminal, _CHUNK)
            except BlockingIOError:
                return
            except OSError:  # the terminal has no writers any more
                text = b""
            if not text:
                os.close(child.terminal)
                child.terminal = -1
                return
            self._tell(child.connection, "said", text)

    def _reap(self) -> None:
        from acme_ext.launch.processes.forks import last_words

        ended = []
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                ended.append(found)
        if self._stopped:  # before the event that the coordinator has ended
            self._stopped = False
            for connection in self._connections:
                self._tell(connection, "stop")
        if self._requested:
            self._requested = False
            for connection in self._connections[:1]:  # one agent is enough
                self._tell(connection, "request")
        for pid, status in ended:
            code = code_of(status)
            if pid in self._asking and status:
                self._tell(self._asking[pid], "unanswered")
            self._asking.pop(pid, None)
            if (child := self._children.pop(pid, None)) is None:
                continue
            if child.terminal >= 0:
                self._relay(child)
            if child.terminal >= 0:
                os.close(child.terminal)  # a process that it started may still have it open
            words = last_words(child.order.options.log_of(child.order.name), child.log_start) if code else ""
            self._tell(child.connection, "ended", code, words)

    def _tell(self, connection: Connection, *message: object) -> None:
        with contextlib.suppress(OSError):  # the agent has disconnected; `recv` will notice
            connection.send(message)


def _load(node: bytes):
    import cloudpickle

    return cloudpickle.loads(node)


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
    """Runs the nursery as the child of a process that only cleans up after it; see `processes.process_tree`."""
    if os.fork():
        os._exit(0)  # detaches, since it outlives the agent that started it
    process_tree.take_in_orphans()
    keeper, nursery = os.getpid(), os.fork()
    if nursery == 0:
        process_tree.take_in_orphans()
        signal.signal(process_tree.ORPHANED, process_tree.abandon)
        if process_tree.tell_when_orphaned(keeper, process_tree.ORPHANED):
            from acme_ext.launch.processes.supervisor import warm

            warm()
            try:
                Nursery(socket.socket(fileno=descriptor), folder).run()
            finally:
                process_tree.end_children()
        os._exit(0)
    os.close(descriptor)
    _, status = os.waitpid(nursery, 0)
    process_tree.end_children()
    if status == 0:
        clear(folder)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
