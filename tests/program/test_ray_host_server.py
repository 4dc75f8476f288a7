"""The process that forks nodes on a host, without Ray: what proxies are told, and what ends with what."""

import os
import pathlib
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import launchpad as lp
import psutil
import pytest
from programs import PATIENCE_S

from acme_ext.launch.hosts import process_tree
from acme_ext.launch.hosts.node_process import Options, bind
from acme_ext.launch.hosts.ray import host_server
from acme_ext.launch.hosts.ray.host_server import StartCommand
from acme_ext.launch.roles import NodeId

_MARK = "ACME_EXT_TEST_HOST_SERVER"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Iterator[pathlib.Path]:
    """A host's folder for a run; nothing that was started for it may be left at the end."""
    monkeypatch.setenv(_MARK, str(tmp_path))
    # A socket's path is short.
    short = pathlib.Path(f"/tmp/acme-ext-test-{os.getpid()}")
    short.mkdir(mode=0o700, exist_ok=True)
    yield short / "n"
    _until(lambda: not _marked(tmp_path))
    short.rmdir()


def _marked(tmp_path: pathlib.Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get(_MARK) == str(tmp_path) and process.pid != os.getpid()
            found += [process] if ours and process.status() != psutil.STATUS_ZOMBIE else []
        except psutil.Error:
            continue
    return found


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _connect(folder: pathlib.Path) -> Connection:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return host_server.connect(folder, environment)


def _command(
    tmp_path: pathlib.Path, name: str, function: Callable[[], Any], **options: Any
) -> tuple[str, StartCommand]:
    program = lp.Program("test")
    node = lp.PyNode(function)
    with program.group(name):
        program.add_node(node)
    bind(program)
    made = Options(tmp_path / "logs")
    return "start", StartCommand(
        cloudpickle.dumps(node), NodeId.parse(name), made, {"GIVEN": "too", "LANG": None}, **options
    )


def _receive(connection: Connection) -> tuple:
    assert connection.poll(PATIENCE_S)
    return connection.recv()


def _drain(connection: Connection) -> None:
    while True:
        _receive(connection)


def _say_and_stop() -> None:
    print("on the terminal", os.environ.get("GIVEN"), os.environ.get("LANG"), sys.stderr.isatty(), file=sys.stderr)
    print("in the log")
    lp.stop()


def _fail() -> None:
    raise ArithmeticError("the arm fell off")


def _leave_a_process() -> None:
    import subprocess

    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    time.sleep(1000)


def test_nodes_tell_and_are_told_and_end_with_their_proxies(tmp_path, folder):
    first, second = _connect(folder), _connect(folder)

    # What a coordinator says to the user comes to its proxy, and the word that the program ends to all.
    first.send(_command(tmp_path, "coordinator", _say_and_stop, columns=80))
    assert _receive(first)[0] == "started"
    said = b""
    while (message := _receive(first))[0] == "said":
        said += message[1]
    assert said == b"on the terminal too None True\n"
    assert message == ("stop",)
    assert _receive(first) == ("ended", 0, "")
    assert _receive(second) == ("stop",)
    assert (tmp_path / "logs" / "coordinator.log").read_text() == "in the log\n"

    # A node that fails gives the reason; the same proxy may have it started again, and signals it.
    first.send(_command(tmp_path, "actor-0", _fail))
    assert _receive(first)[0] == "started"
    what, code, words = _receive(first)
    assert (what, code) == ("ended", 1)
    assert "ArithmeticError: the arm fell off" in words
    first.send(_command(tmp_path, "actor-0", _leave_a_process))
    assert _receive(first)[0] == "started"
    first.send(("signal", int(signal.SIGKILL)))
    assert _receive(first) == ("ended", -signal.SIGKILL, ".")

    # A proxy that goes takes its node along, the last one all.
    first.send(_command(tmp_path, "actor-0", _leave_a_process))
    _, pid = _receive(first)
    assert psutil.pid_exists(pid)
    first.close()
    _until(lambda: not psutil.pid_exists(pid))
    assert _marked(tmp_path)
    second.close()
    _until(lambda: not _marked(tmp_path))
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, pytest.param(1, marks=pytest.mark.release)])
def test_whichever_process_of_it_is_killed_takes_the_nodes_along(place, tmp_path, folder):
    connection = _connect(folder)
    connection.send(_command(tmp_path, "actor", _leave_a_process))
    assert _receive(connection)[0] == "started"
    above = sorted(
        (p for p in _marked(tmp_path) if "host_server" in " ".join(p.cmdline())), key=lambda p: p.create_time()
    )
    assert len(above) >= 3  # what watches, the server, the node
    above[place].kill()
    with pytest.raises((EOFError, ConnectionResetError)):
        _drain(connection)
    _until(lambda: not _marked(tmp_path))
    host_server.clear(folder)


def test_a_server_that_can_not_import_says_why(tmp_path, folder, monkeypatch):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "courier.py").write_text("raise ImportError('not for this machine')")
    connection = host_server.connect(folder, {**os.environ, "PYTHONPATH": os.pathsep.join([str(broken), *sys.path])})
    with pytest.raises((EOFError, ConnectionResetError)):
        _receive(connection)
    assert "ImportError: not for this machine" in host_server.why(folder)
    _until(lambda: not _marked(tmp_path))
    host_server.clear(folder)


@pytest.mark.release
def test_a_proxy_that_comes_while_a_server_ends_is_given_another(tmp_path, folder):
    """Nodes with much memory take seconds to end, and the server waits for them."""
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "server.sock"))
        server.listen()

        def run() -> int:
            host_server.HostServer(server, folder).run()
            time.sleep(1000)  # as long as its last node takes
            return 0

        ending = process_tree.fork(run)
    try:
        _connect(folder).close()
        time.sleep(0.5)
        connection = _connect(folder)
        connection.send(_command(tmp_path, "actor", _fail))
        assert _receive(connection)[0] == "started"
        host_server.clear(folder)  # as the one that ends does at last: it leaves the other's files
        assert (folder / "server.sock").exists()
    finally:
        os.kill(ending, signal.SIGKILL)
        os.waitpid(ending, 0)
    connection.close()
    _until(lambda: not folder.exists())
