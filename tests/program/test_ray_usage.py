"""What a node takes of its host, as Ray is told it."""

import os
import subprocess
import sys

import psutil
import pytest

from acme_ext.launch.hosts.ray import usage

# It computes until it has used half a second of CPU, and has a child that does so too.
_CODE = """
import os, subprocess, sys, time
child = len(sys.argv) == 1 and subprocess.Popen([sys.executable, sys.argv[0], "child"], stdout=subprocess.PIPE)
held = bytearray(50_000_000)
held[:: 4096] = b"1" * len(held[:: 4096])
while time.process_time() < 0.5:
    pass
if child:
    child.stdout.read(1)
print("x", end="", flush=True)
time.sleep(1000)
"""


def test_a_process_is_measured_with_what_it_has_started(tmp_path):
    script = tmp_path / "computes.py"
    script.write_text(_CODE)
    now = 100.0
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE)
    try:
        meter = usage.Meter(process.pid, lambda: now)
        before = sum(psutil.Process(process.pid).cpu_times()[:2])
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        now = 102.0
        cpus, memory = meter.measure()
        assert cpus * 2 >= 0.9 - before
        assert memory > 100_000_000
    finally:
        for child in psutil.Process(process.pid).children():
            child.kill()
        process.kill()
        process.wait()
    with pytest.raises(psutil.NoSuchProcess):
        meter.measure()


def test_what_is_measured_is_told_for_each_node_and_nothing_once_it_has_ended(monkeypatch, capsys):
    metrics = pytest.importorskip("ray.util.metrics")
    told = []

    class Gauge:
        def __init__(self, name, description, tag_keys):
            self.name, self.keys = name, tag_keys

        def set_default_tags(self, tags):
            assert self.keys == tuple(tags)
            self.tags = tags

        def set(self, value):
            told.append((self.name, self.tags["node"], value))

    class _EndedError(Exception):
        pass

    values = iter([(0.5, 3_000_000), (0.25, 4_000_000), psutil.NoSuchProcess(1)])

    class Meter:
        def __init__(self, pid):
            assert pid == os.getpid()

        def measure(self):
            value = next(values)
            if isinstance(value, Exception):
                raise value
            return value

    def sleep(seconds):
        if len(told) == 8:
            raise _EndedError

    monkeypatch.setattr(metrics, "Gauge", Gauge)
    monkeypatch.setattr(usage, "Meter", Meter)
    monkeypatch.setattr(usage.threading, "Thread", lambda **options: type("Idle", (), {"start": lambda self: None})())
    monkeypatch.setattr(usage.time, "sleep", sleep)
    made = usage.Usage("acme-ext-1", "actor-1")
    made.follow(os.getpid())
    with pytest.raises(_EndedError):
        made._run()
    assert [(name.removeprefix("acme_ext_node_"), value) for name, node, value in told if node == "actor-1"] == [
        ("cpus", 0.5),
        ("memory_bytes", 3_000_000),
        ("cpus", 0.25),
        ("memory_bytes", 4_000_000),
        ("cpus", 0.0),
        ("memory_bytes", 0),
        ("cpus", 0.0),
        ("memory_bytes", 0),
    ]
    assert capsys.readouterr().out == "the node uses 0.50 CPUs and 3 MB\n"
