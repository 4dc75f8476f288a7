"""Reports why a run makes no progress."""

import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable


class Watchdog:
    """Calls `report(describe())` from a separate thread when `progress()` has not changed for `patience_s` seconds.

    It repeats this after each further `patience_s` without progress. Errors in these functions don't end the run:
    errors of `progress` or `describe` are reported, and errors of `report` are printed on stderr.

        with Watchdog(lambda: counter.steps, limiter.describe, line.print):
            run()
    """

    def __init__(
        self,
        progress: Callable[[], Hashable],
        describe: Callable[[], str],
        report: Callable[[str], None],
        patience_s: float = 30.0,
    ):
        self._progress = progress
        self._describe = describe
        self._report = report
        self._patience_s = patience_s
        self._poll_s = min(1.0, patience_s / 10)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread. If `describe` hangs, the thread continues until the process ends."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)

    def __enter__(self) -> "Watchdog":
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _watch(self) -> None:
        seen, stalled_s, before = self._read(), 0.0, time.monotonic()
        while not self._stop.wait(self._poll_s):
            now, value = time.monotonic(), self._read()
            # A process that was stopped (Ctrl-Z) comes back with a long gap, which isn't a stall.
            stalled_s = stalled_s + min(now - before, 2 * self._poll_s) if value == seen else 0.0
            seen, before = value, now
            if stalled_s >= self._patience_s:
                stalled_s = 0.0
                self._tell()

    def _read(self) -> Hashable:
        try:
            return self._progress()
        except Exception as error:
            return f"{type(error).__name__}: {error}"  # equal while it fails in the same way: a stall

    def _tell(self) -> None:
        try:
            message = self._describe()
        except Exception as error:
            message = (
                f"nothing has moved for {self._patience_s:.0f} s, and what holds it up can't be told: "
                f"{type(error).__name__}: {error}"
            )
        if self._stop.is_set():  # it may have ended while `describe` waited
            return
        try:
            self._report(message)
        except Exception:
            traceback.print_exc(file=sys.stderr)
