"""Measures the resource usage of nodes. Ray itself sees only a node's agent, not the node's own processes."""

import contextlib
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterator

_PERIOD_S = 5.0
_LOG_EVERY_S = 60.0


class Meter:
    """Measures a process together with all its descendants.

    Args:
        pid: the process's pid.
        clock: returns the time in seconds.
    """

    def __init__(self, pid: int, clock: Callable[[], float] = time.monotonic):
        self._pid, self._clock = pid, clock
        self._seconds: dict[int, float] = {}  # pid -> seconds of CPU time at the last measurement
        self._at = clock()
        self.measure()

    def measure(self) -> tuple[float, int]:
        """Returns the mean number of CPUs in use since the last measurement, and the bytes of memory in use now.

        Raises:
            OSError: the process has ended.
        """
        found = {self._pid: _status(self._pid)}
        for pid in _descendants(self._pid):
            with contextlib.suppress(OSError):  # it has just ended
                found[pid] = _status(pid)
        before, self._seconds = self._seconds, {pid: seconds for pid, (seconds, _) in found.items()}
        used = sum(max(0.0, now - before.get(pid, 0.0)) for pid, now in self._seconds.items())
        passed, self._at = self._clock() - self._at, self._clock()
        return used / max(passed, 1e-9), sum(memory for _, memory in found.values())


def _status(pid: int) -> tuple[float, int]:
    """Returns the seconds of CPU time that a process has used, and its bytes of resident memory."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")


def _descendants(pid: int) -> Iterator[int]:
    """Yields the descendants of a process: its children, and their descendants."""
    with contextlib.suppress(OSError):  # it has just ended
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from _descendants(child)


class Usage:
    """Reports a node's usage to Ray's metrics, and sometimes to the actor's log, from its own thread.

    Args:
        run: name of this start of the program.
        node: the node's name.
    """

    def __init__(self, run: str, node: str):
        from ray.util import metrics

        tags = {"run": run, "node": node}
        self._gauges = [
            metrics.Gauge(f"acme_ext_node_{what}", description, tuple(tags))
            for what, description in (("cpus", "CPUs that a node has in use"), ("memory_bytes", "Memory of a node"))
        ]
        for gauge in self._gauges:
            gauge.set_default_tags(tags)
        self._meter: Meter | None = None
        threading.Thread(target=self._run, name="usage", daemon=True).start()

    def follow(self, pid: int) -> None:
        """Starts measuring a process."""
        with contextlib.suppress(OSError):  # it has ended already
            self._meter = Meter(pid)

    def _run(self) -> None:
        next_line = 0.0
        while True:
            time.sleep(_PERIOD_S)
            try:
                found = (0.0, 0) if self._meter is None else self._meter.measure()
            except OSError:
                self._meter, found = None, (0.0, 0)
            for gauge, value in zip(self._gauges, found, strict=True):
                gauge.set(value)
            if self._meter is not None and time.monotonic() >= next_line:
                next_line = time.monotonic() + _LOG_EVERY_S
                print(f"the node uses {found[0]:.2f} CPUs and {found[1] / 1e6:,.0f} MB", flush=True)
