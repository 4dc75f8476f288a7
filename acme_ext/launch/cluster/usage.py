"""What a node takes of its host. Ray sees the actor that stands for the node, and not the node's own processes."""

import contextlib
import threading
import time
from collections.abc import Callable

_PERIOD_S = 5.0
_LOG_EVERY_S = 60.0


class Meter:
    """Measures a process with all that it has started.

    Args:
        pid: its number.
        clock: gives seconds.
    """

    def __init__(self, pid: int, clock: Callable[[], float] = time.monotonic):
        import psutil

        self._process, self._clock = psutil.Process(pid), clock
        self._seconds: dict[int, float] = {}  # of CPU, that each process had at the last measurement
        self._at = clock()
        self.measure()

    def measure(self) -> tuple[float, int]:
        """Returns the CPUs that were in use since the last measurement, and the bytes of memory that are now.

        Raises:
            psutil.Error: the process has ended.
        """
        import psutil

        before, memory = self._seconds, 0
        self._seconds = {}
        for process in (self._process, *self._process.children(recursive=True)):
            try:
                times, size = process.cpu_times(), process.memory_info().rss
            except psutil.Error:
                if process is self._process:
                    raise
                continue  # it has just ended
            self._seconds[process.pid] = times.user + times.system
            memory += size
        used = sum(max(0.0, now - before.get(pid, 0.0)) for pid, now in self._seconds.items())
        passed, self._at = self._clock() - self._at, self._clock()
        return used / max(passed, 1e-9), memory


class Usage:
    """Tells Ray's metrics, and now and then the actor's log, what a node takes, from a thread of its own.

    Args:
        run: names this start of the program.
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
        """Measures a process from now on."""
        with contextlib.suppress(Exception):  # it has ended already
            self._meter = Meter(pid)

    def _run(self) -> None:
        next_line = 0.0
        while True:
            time.sleep(_PERIOD_S)
            try:
                found = (0.0, 0) if self._meter is None else self._meter.measure()
            except Exception:
                self._meter, found = None, (0.0, 0)
            for gauge, value in zip(self._gauges, found, strict=True):
                gauge.set(value)
            if self._meter is not None and time.monotonic() >= next_line:
                next_line = time.monotonic() + _LOG_EVERY_S
                print(f"the node uses {found[0]:.2f} CPUs and {found[1] / 1e6:,.0f} MB", flush=True)
