"""Measures the resource usage of nodes. Ray itself sees only a node's proxy, not the node's own processes."""

import contextlib
import threading
import time
from collections.abc import Callable

import psutil

_PERIOD_S = 5.0
_LOG_EVERY_S = 60.0


class Meter:
    """Measures a process together with all its descendants.

    Args:
        pid: the process's pid.
        clock: returns the time in seconds.

    Raises:
        psutil.Error: the process has ended.
    """

    def __init__(self, pid: int, clock: Callable[[], float] = time.monotonic):
        self._process, self._clock = psutil.Process(pid), clock
        self._seconds: dict[int, float] = {}  # pid -> seconds of CPU time at the last measurement
        self._at = clock()
        self.measure()

    def measure(self) -> tuple[float, int]:
        """Returns the mean number of CPUs in use since the last measurement, and the bytes of memory in use now.

        Raises:
            psutil.Error: the process has ended.
        """
        used, memory, before, self._seconds = 0.0, 0, self._seconds, {}
        for process in [self._process, *self._process.children(recursive=True)]:
            with contextlib.nullcontext() if process is self._process else contextlib.suppress(psutil.Error):
                self._seconds[process.pid] = seconds = sum(process.cpu_times()[:2])
                used += max(0.0, seconds - before.get(process.pid, 0.0))
                memory += process.memory_info().rss
        passed, self._at = self._clock() - self._at, self._clock()
        return used / max(passed, 1e-9), memory


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
        with contextlib.suppress(psutil.Error):  # it has ended already
            self._meter = Meter(pid)

    def _run(self) -> None:
        next_line = 0.0
        while True:
            time.sleep(_PERIOD_S)
            try:
                found = (0.0, 0) if self._meter is None else self._meter.measure()
            except psutil.Error:
                self._meter, found = None, (0.0, 0)
            for gauge, value in zip(self._gauges, found, strict=True):
                gauge.set(value)
            if self._meter is not None and time.monotonic() >= next_line:
                next_line = time.monotonic() + _LOG_EVERY_S
                print(f"the node uses {found[0]:.2f} CPUs and {found[1] / 1e6:,.0f} MB", flush=True)
