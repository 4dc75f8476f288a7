"""The progress line of a run."""

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

_WINDOW_S = 10.0  # interval over which rates are computed
_LIVE_INTERVAL_S = 0.2
_EPISODES = 20  # how many of the latest episode returns are averaged


class ProgressLine:
    """A live line on a terminal, or a new line every `interval_s` seconds elsewhere (a file, a notebook, a pipe).

    `update` takes the fields that changed, by name. They are shown in the order of their first appearance:

    - the count that `budget` names: the percentage done, steps per second and the remaining time;
    - any other name that ends in `_steps`: its rate (`learner_steps=12` is shown as `learner 3/s`);
    - `episode_return`, given once for each episode: the mean of the last 20;
    - any other number or text: its value.

    Rates are over the last ten seconds. They start at the first update, so the steps before a resume don't count. The
    line is drawn by the thread that calls `update`, `print` or `close`. If the terminal is closed, the run continues.
    """

    def __init__(
        self,
        total_steps: int,
        stream: TextIO | None = None,
        *,
        shown: bool = True,
        interval_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        budget: str = "environment_steps",
    ):
        self._total, self._shown, self._budget = total_steps, shown, budget
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._interval_s = _LIVE_INTERVAL_S if self._live else interval_s
        self._window_s = max(_WINDOW_S, self._interval_s)
        self._clock = clock
        self._fields: dict[str, float | str] = {}
        self._returns: deque[float] = deque(maxlen=_EPISODES)
        self._samples: dict[str, deque[tuple[float, float]]] = {}  # of each count: (time, count), oldest first
        self._due: float | None = None  # when to draw next; None before the first update
        self._drawn = self._closed = False
        self._lock = threading.RLock()

    def update(self, **fields: float | str) -> None:
        """Sets the fields that changed, and draws the line if it is due."""
        with self._lock:
            if self._closed:
                return
            self._fields.update(fields)
            if "episode_return" in fields:
                self._returns.append(float(fields["episode_return"]))
            now = self._clock()
            if self._due is None:
                self._sample(now)
                self._due = now if self._live else now + self._interval_s
            elif any(name not in self._samples for name in fields if name.endswith("_steps")):
                self._sample(now)
            if now >= self._due:
                self._due = now + self._interval_s
                self._sample(now)
                self._draw()

    def print(self, message: str) -> None:
        """Prints a message above the live line."""
        with self._lock:
            self._write(f"\r\x1b[K{message}\n" if self._drawn else f"{message}\n")
            if self._drawn and not self._closed:
                self._draw()

    def close(self) -> None:
        """Draws the line for the last time, and leaves it on the terminal."""
        with self._lock:
            if self._closed:
                return
            if self._fields:
                self._sample(self._clock())
                self._draw()
            if self._drawn:
                self._write("\n")
            self._drawn, self._closed = False, True

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _sample(self, now: float) -> None:
        for name, value in self._fields.items():
            if name.endswith("_steps"):
                samples = self._samples.setdefault(name, deque())
                samples.append((now, float(value)))
                # The oldest sample is kept until the one after it is as old as the window.
                while len(samples) > 2 and samples[1][0] <= now - self._window_s:
                    samples.popleft()

    def _rate(self, name: str) -> float | None:
        (start, before), (end, after) = self._samples[name][0], self._samples[name][-1]
        return (after - before) / (end - start) if end > start else None

    def _parts(self) -> list[str]:
        parts = []
        if self._budget in self._fields:
            steps, rate = int(float(self._fields[self._budget])), self._rate(self._budget)
            parts.append(f"{100 * steps / max(1, self._total):3.0f}%  {steps:,}/{self._total:,} steps")
            if rate is not None:
                parts.append(f"{number(rate)}/s")
                if rate > 0 and steps < self._total:
                    parts.append(f"{duration((self._total - steps) / rate)} left")
        for name, value in self._fields.items():
            if name == "episode_return":
                parts.append(f"return {number(sum(self._returns) / len(self._returns))}")
            elif name.endswith("_steps"):
                if name != self._budget and (rate := self._rate(name)) is not None:
                    parts.append(f"{name.removesuffix('_steps').replace('_', ' ')} {number(rate)}/s")
            else:
                parts.append(f"{name.replace('_', ' ')} {value if isinstance(value, str) else number(value)}")
        return parts

    def _draw(self) -> None:
        if not self._shown:
            return
        parts = self._parts()
        if not self._live:
            self._write("  ".join(parts) + "\n")
            return
        room = self._columns() - 1  # a full line would make the terminal wrap
        while len(parts) > 1 and len("  ".join(parts)) > room:
            parts.pop()
        self._write("\r\x1b[K" + "  ".join(parts)[:room])
        self._drawn = True

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the stream or its terminal is closed; the run continues
            pass


def number(value: float) -> str:
    """Returns a number in few digits: 12,345, 123.4 or 1.23."""
    value = float(value)
    if value.is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Returns seconds as 1:02:03 or 2:03."""
    minutes, seconds = divmod(round(min(seconds, 359_999_999)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
