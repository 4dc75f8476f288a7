"""What Ray's driver does before there is a Ray."""

import importlib.util
import signal
import subprocess
import sys

import pytest

from acme_ext.launch.hosts import process_tree

_CODE = """
import os, pathlib, signal, sys, types
from acme_ext.errors import UsageError
from acme_ext.launch.hosts import launcher, subreaper
from acme_ext.launch.hosts.ray import connection, driver

asked = pathlib.Path(sys.argv[1])

def make_spec():  # as an environment that starts threads and imports Ray
    print("asked", os.getpid() != driver_pid, "ray" in sys.modules, file=asked.open("a"))

def begin(*arguments, **options):
    print("begun", len(os.listdir("/proc/self/task")), "ray" in sys.modules, file=asked.open("a"))
    if len(sys.argv) < 4:
        raise UsageError("that is enough.")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))  # as ray.init does

class Waiting:
    def __init__(self, plan, spec):
        pass

    def run(self):  # for room on the cluster
        os.kill(os.getpid(), int(sys.argv[3]))

driver.Driver = Waiting
driver_pid = os.getpid()
plan = types.SimpleNamespace(
    make_spec=make_spec, address=sys.argv[2] or None, groups={"actor": 1}, resources={"actor": {"CPU": 1}},
    folder=asked.parent, code=asked.parent, directory=asked.parent, runtime_env={},
)
launcher.receive = lambda reader: plan
connection.start = connection.connect = begin
sys.exit(subreaper.supervise("ray.driver", -1, False, os.getppid()))
"""


@pytest.mark.parametrize("address", ["", "auto"])
def test_an_environment_is_asked_for_its_specs_in_a_child_before_there_is_a_ray(address, tmp_path):
    """One that forks workers when it is made would fork Ray's threads, or what they have locked."""
    asked = tmp_path / "asked"
    line = [sys.executable, "-c", _CODE, str(asked), address]
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""}
    done = subprocess.run(line, env=environment, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (2, "acme-ext: that is enough.\n")
    assert asked.read_text().splitlines() == ["asked True False", "begun 1 False"]


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `ray`")
@pytest.mark.parametrize("number", [signal.SIGTERM, process_tree.REQUESTS[signal.SIGINT]])
def test_a_stop_while_it_waits_for_room_is_no_failure(number, tmp_path):
    line = [sys.executable, "-c", _CODE, str(tmp_path / "asked"), "auto", str(int(number))]
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""}
    done = subprocess.run(line, env=environment, stderr=subprocess.PIPE, text=True, timeout=120)
    stopped = signal.SIGTERM if number == signal.SIGTERM else signal.SIGINT
    assert (done.returncode, done.stderr) == (128 + stopped, "")
