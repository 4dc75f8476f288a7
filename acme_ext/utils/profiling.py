"""Measures how a loop spends its time: shares of named parts, and a trace of calls."""

import collections
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from acme_ext.utils import files

_MOST_CALLS = 200_000  # in a trace, the newest


class Share(NamedTuple):
    """The time of all calls with one name."""

    seconds: float = 0.0  # without the named calls inside them
    cpu_seconds: float = 0.0  # CPU time of the calling thread, without the named calls inside them
    calls: int = 0


class Profiler:
    """Measures the calls of one thread by name. A call inside another one counts only for its own name."""

    def __init__(self):
        self.restart()

    def restart(self) -> None:
        """Resets all measurements; must not be called inside a measured call."""
        self._shares: dict[str, Share] = {}
        self._trace: collections.deque[tuple[str, float, float]] = collections.deque(maxlen=_MOST_CALLS)
        self._inside = [0.0, 0.0]  # wall and CPU seconds of the named calls inside the one that runs
        self._start = time.perf_counter()
        self._cpu = time.thread_time(), time.process_time()
        self._totals: tuple[float, float, float] | None = None

    def stop(self) -> None:
        """Ends the measurement, and records the total times."""
        thread, process = self._cpu
        self._totals = (
            time.perf_counter() - self._start,
            time.thread_time() - thread,
            time.process_time() - process,
        )

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function with its calls measured under a name."""

        def measured(*arguments: Any, **options: Any) -> Any:
            outer, self._inside = self._inside, [0.0, 0.0]
            cpu, start = time.thread_time(), time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                seconds, cpu_seconds = time.perf_counter() - start, time.thread_time() - cpu
                share = self._shares.get(name, Share())
                inner_s, inner_cpu = self._inside
                self._shares[name] = Share(
                    share.seconds + seconds - inner_s, share.cpu_seconds + cpu_seconds - inner_cpu, share.calls + 1
                )
                self._trace.append((name, start, seconds))
                self._inside = outer
                outer[0] += seconds
                outer[1] += cpu_seconds

        return measured

    def wrap(self, name: str, thing: Any, *methods: str) -> None:
        """Measures an object's methods under a name from now on; other objects of its class are not affected."""
        for method in methods:
            setattr(thing, method, self.timed(name, getattr(thing, method)))

    def iterator(self, name: str, iterator: Iterator[Any]) -> Iterator[Any]:
        """Returns an iterator whose waits for the next item are measured under a name."""
        take = self.timed(name, lambda: next(iterator, _END))
        return iter(take, _END)

    def shares(self) -> dict[str, Share]:
        """Returns the time of each name, the longest first; `other` is the time without a name."""
        seconds, cpu, _ = self._total()
        named = dict(sorted(self._shares.items(), key=lambda item: -item[1].seconds))
        other = Share(
            seconds - sum(share.seconds for share in named.values()),
            cpu - sum(share.cpu_seconds for share in named.values()),
        )
        return {**named, "other": other}

    def table(self, units: int, unit: str) -> str:
        """Returns the shares as text, with the time that each took for one of `units`."""
        seconds, cpu, process = self._total()
        lines = [f"{'':<20}{'share':>8}{'us a ' + unit:>14}{'CPU us':>10}{'calls':>12}{'us a call':>12}"]
        for name, share in self.shares().items():
            lines.append(
                f"{name:<20}{share.seconds / seconds:>8.1%}{1e6 * share.seconds / units:>14.1f}"
                f"{1e6 * share.cpu_seconds / units:>10.1f}{share.calls or '':>12}"
                f"{format(1e6 * share.seconds / share.calls, '.1f') if share.calls else '':>12}"
            )
        lines += [
            f"{'all':<20}{1:>8.0%}{1e6 * seconds / units:>14.1f}{1e6 * cpu / units:>10.1f}",
            f"{'other threads':<20}{'':>8}{'':>14}{1e6 * (process - cpu) / units:>10.1f}",
            f"{units:,} {unit}s in {seconds:.1f} s: {units / seconds:,.0f} a second",
        ]
        return "\n".join(lines) + "\n"

    def write_trace(self, path: pathlib.Path) -> None:
        """Writes the newest calls in the trace event format, which https://ui.perfetto.dev opens."""
        events = [
            {
                "name": name,
                "ph": "X",
                "ts": round(1e6 * (start - self._start), 3),
                "dur": round(1e6 * seconds, 3),
                "pid": 0,
                "tid": 0,
            }
            for name, start, seconds in self._trace
        ]
        files.write_text(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))

    def _total(self) -> tuple[float, float, float]:
        if self._totals is None:
            self.stop()
        assert self._totals is not None
        return self._totals


_END = object()
