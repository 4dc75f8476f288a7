"""Reverb's notes on the terminal, which bypass Python."""

import contextlib
import os
import subprocess
import sys
import threading

import pytest

from acme_ext.replay.reverb.server import ReverbServer
from acme_ext.utils.native import native_stderr


def test_notes_are_filtered_by_line_and_all_else_comes_through(capfd):
    with native_stderr():
        os.write(2, b"[reverb/cc/platform/default/server.cc:71] Started replay server on port 1\n")
        os.write(2, b"terminate called ")
        os.write(2, b"without an active exception\n  [reverb/cc/client.cc:165] Sampler\n")
        os.write(2, b"W0000 00:00:1 cpu.cc:1] a warning\nI0000 00:00:1 cpu.cc:2] a note\n\n")
        os.write(2, b"an end without a line's")
    assert capfd.readouterr().err == "terminate called without an active exception\n\nan end without a line's"


def test_python_writes_past_the_filter(capfd):
    with native_stderr():
        print("[reverb/ is what a message may begin with", file=sys.stderr)
    assert capfd.readouterr().err == "[reverb/ is what a message may begin with\n"


@pytest.mark.parametrize("fails", [False, True])
def test_the_descriptor_and_the_stream_are_restored(capfd, fails):
    stream, terminal = sys.stderr, os.fstat(2)
    descriptors = set(os.listdir("/proc/self/fd"))
    try:
        with native_stderr():
            assert os.fstat(2).st_ino != terminal.st_ino
            if fails:
                raise ArithmeticError
    except ArithmeticError:
        assert fails
    assert sys.stderr is stream
    assert (os.fstat(2).st_dev, os.fstat(2).st_ino) == (terminal.st_dev, terminal.st_ino)
    assert set(os.listdir("/proc/self/fd")) <= descriptors
    os.write(2, b"[reverb/ again\n")
    assert capfd.readouterr().err == "[reverb/ again\n"


def test_it_nests_and_can_be_used_again(capfd):
    for _ in range(2):
        with native_stderr(), native_stderr():
            os.write(2, b"I0000 a note\nkept\n")
    assert capfd.readouterr().err == "kept\nkept\n"


def test_a_child_that_lives_on_writes_to_no_other_file(capfd, tmp_path):
    with native_stderr():
        child = subprocess.Popen(["sh", "-c", "read _; echo from a child >&2"], stdin=subprocess.PIPE)
    with contextlib.ExitStack() as files:
        for i in range(8):  # one of them could have the descriptor that the terminal had
            files.enter_context(open(tmp_path / str(i), "w"))
        child.communicate(b"\n")
        for thread in threading.enumerate():
            if thread.name == "native-stderr":
                thread.join()
    assert {path.read_text() for path in tmp_path.iterdir()} == {""}
    assert capfd.readouterr().err == "from a child\n"


def test_a_server_of_reverbs_starts_and_ends_silently(capfd):
    import reverb

    with native_stderr():
        server = ReverbServer([reverb.Table.queue("table", 3)])
        server.close()
    assert capfd.readouterr().err == ""


def test_compiled_code_never_waits_for_python_to_read():
    """Reverb's writer tells of each item that waits while Python waits for the writer."""
    code = """
import ctypes
from acme_ext.utils.native import native_stderr
line = b"[reverb/cc/trajectory_writer.cc:653] The number of pending items is alarmingly high" + b"." * 200 + b"\\n"
write = ctypes.PyDLL(None).write  # with Python's lock
with native_stderr():
    write(2, b"kept\\n", 5)
    for _ in range(10):
        write(2, 1_000 * line, 1_000 * len(line))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert done.stderr.startswith(b"kept\n")
