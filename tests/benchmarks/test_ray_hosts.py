"""The simulated hosts of a cluster, without namespaces."""

import signal
import subprocess

import pytest

from benchmarks.faults import ray_hosts


def test_a_host_that_can_not_be_set_up_leaves_no_process(monkeypatch):
    started, popen = [], subprocess.Popen

    def sleep(line, **options):
        started.append(popen(["sleep", "60"], **options))
        return started[-1]

    def fail(host, line):
        raise RuntimeError(line)

    monkeypatch.setattr(ray_hosts.subprocess, "Popen", sleep)
    monkeypatch.setattr(ray_hosts, "_wait_for", lambda condition: None)
    monkeypatch.setattr(ray_hosts.Host, "run", fail)
    with pytest.raises(RuntimeError, match="type bridge"):
        ray_hosts.Host(None, 0)
    assert [process.returncode for process in started] == [-signal.SIGKILL]
