"""Shares of time, by a clock that the tests set."""

import json

import pytest

from acme_ext.utils import profiling


@pytest.fixture
def clock(monkeypatch):
    """A clock for everything, as a list of one number; a thread's CPU runs at half of it, the process's at twice."""
    now = [0.0]
    monkeypatch.setattr(profiling.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(profiling.time, "thread_time", lambda: now[0] / 2)
    monkeypatch.setattr(profiling.time, "process_time", lambda: now[0] * 2)
    return now


class Ring:
    def __init__(self, clock):
        self.clock = clock

    def outer(self):
        self.clock[0] += 1
        self.inner()
        self.inner()
        return "done"

    def inner(self):
        self.clock[0] += 2


def test_a_call_inside_another_counts_for_its_own_name(clock, tmp_path):
    profiler, ring = profiling.Profiler(), Ring(clock)
    profiler.wrap("outside", ring, "outer")
    profiler.wrap("inside", ring, "inner")
    assert ring.outer() == "done"
    clock[0] += 3
    profiler.stop()
    assert profiler.shares() == {
        "inside": profiling.Share(4.0, 2.0, 2),
        "outside": profiling.Share(1.0, 0.5, 1),
        "other": profiling.Share(3.0, 1.5, 0),
    }
    lines = profiler.table(4, "step").splitlines()
    assert lines[1].split() == ["inside", "50.0%", "1000000.0", "500000.0", "2", "2000000.0"]
    assert lines[-2].split() == ["other", "threads", "3000000.0"]
    assert lines[-1] == "4 steps in 8.0 s: 0 a second"
    profiler.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [(e["name"], e["ts"], e["dur"]) for e in events] == [
        ("inside", 1e6, 2e6),
        ("inside", 3e6, 2e6),
        ("outside", 0.0, 5e6),
    ]


def test_waits_for_an_iterator_and_a_new_beginning(clock):
    profiler = profiling.Profiler()

    def items():
        clock[0] += 1
        yield 1

    assert list(profiler.iterator("wait", items())) == [1]
    assert profiler.shares()["wait"] == profiling.Share(1.0, 0.5, 2)
    profiler.restart()
    assert set(profiler.shares()) == {"other"}


def test_an_error_goes_through(clock):
    profiler = profiling.Profiler()
    with pytest.raises(ZeroDivisionError):
        profiler.timed("bad", lambda: 1 / 0)()
    assert profiler.shares()["bad"].calls == 1
