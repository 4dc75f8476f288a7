"""The launcher's side of a program. Nothing is run."""

import os
import subprocess
import sys
from typing import ClassVar

import cloudpickle
import psutil
import pytest

from acme_ext.launch.hosts import launcher

_ENTRY = "local"


class Process:
    """A keeper that ends at once; it remembers all that were started."""

    started: ClassVar[list["Process"]] = []

    def __init__(self, line, env, pass_fds):
        self.line, self.killed = line, False
        self.started.append(self)

    def poll(self):
        return 7

    wait = poll


@pytest.fixture
def started(monkeypatch):
    monkeypatch.setattr(Process, "started", [])
    monkeypatch.setattr(launcher.subprocess, "Popen", Process)
    return Process.started


def test_what_was_started_ahead_is_used_once(started):
    with launcher.prestart(_ENTRY, private=True):
        assert len(started) == 1
        assert launcher.run(_ENTRY, None, private=True) == 7
        assert len(started) == 1
        launcher.run(_ENTRY, None, private=True)
    assert len(started) == 2


@pytest.mark.parametrize(("entry", "private"), [("ray.driver", True), (_ENTRY, False)])
def test_something_else_is_started_by_itself(entry, private, started):
    with launcher.prestart(_ENTRY, private=True):
        launcher.run(entry, None, private)
        assert [(process.line[3], process.line[-1]) for process in started[1:]] == [(entry, str(int(private)))]


def test_what_was_started_ahead_for_nothing_ends():
    with launcher.prestart(_ENTRY, private=False):
        (child,) = psutil.Process().children()
    assert not child.is_running()


def test_what_is_handed_over_comes_with_the_launcher_s_variables_and_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    reader, writer = os.pipe()
    os.write(writer, cloudpickle.dumps(({"LATE": "set"}, [str(tmp_path)], cloudpickle.dumps([1, 2]))))
    assert launcher.receive(reader) == [1, 2]
    assert (os.environ.pop("LATE"), os.environ["PYTHONPATH"], sys.path[-1]) == ("set", str(tmp_path), str(tmp_path))
    os.close(writer)


def test_who_has_given_up_hands_nothing_over():
    reader, writer = os.pipe()
    os.close(writer)
    assert launcher.receive(reader) is None


def test_nothing_heavy_is_imported_to_start_one():
    code = "import sys, acme_ext.launch.hosts.launcher; print(*sys.modules, sep='\\n')"
    found = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert not {"numpy", "jax", "launchpad", "reverb", "tensorflow", "acme"} & set(found)
