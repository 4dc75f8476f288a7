"""Ports that only the program can reach."""

import errno
import os
import socket
import subprocess
import sys

import pytest

_LISTENER = """
import socket, sys
from acme_ext.launch.hosts import isolation
print(isolation.enter(), flush=True)
server = socket.create_server(("", 0))
port = server.getsockname()[1]
print(port, flush=True)
client = socket.create_connection(("localhost", port), timeout=5)
connection, _ = server.accept()
client.sendall(b"from inside")
print(connection.recv(99).decode(), flush=True)
sys.stdin.readline()
server.setblocking(False)  # who came, waits to be accepted
try:
    server.accept()
    print("somebody came", flush=True)
except BlockingIOError:
    print("nobody came", flush=True)
"""

_FORBIDDEN = """
import ctypes, os
from acme_ext.launch.hosts import isolation

class Kernel:
    def unshare(self, flags):
        ctypes.set_errno(1)
        return -1

isolation.ctypes.CDLL = lambda *arguments, **options: Kernel()
before = os.readlink("/proc/self/ns/net")
print(isolation.enter())
print(os.readlink("/proc/self/ns/net") == before)
"""


def _python(code: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, text=True, **pipes)


def test_a_port_in_the_namespace_is_reached_from_inside_only():
    process = _python(_LISTENER)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        why = process.stdout.readline().strip()
        if why != "None":
            pytest.skip(f"this kernel or container has no namespaces for us: {why}")
        port = int(process.stdout.readline())
        assert process.stdout.readline() == "from inside\n"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("localhost", port), timeout=5).close()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "nobody came\n"
    finally:
        process.kill()
        process.communicate()


def test_where_the_kernel_forbids_it_the_reason_is_given_and_nothing_changes():
    out, _ = _python(_FORBIDDEN).communicate(timeout=30)
    assert out.splitlines() == [os.strerror(errno.EPERM), "True"]
