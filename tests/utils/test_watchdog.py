"""The watchdog reports stalls, and survives what it calls."""

import queue
import threading
from typing import Any

import pytest

from acme_ext.utils.watchdog import Watchdog

_SOON_S = 60.0  # far more than any of it takes


def test_a_stall_is_reported_again_and_again():
    reports: queue.Queue[str] = queue.Queue()
    with Watchdog(lambda: 7, lambda: "the table is empty", reports.put, patience_s=0.02):
        assert reports.get(timeout=_SOON_S) == "the table is empty"
        assert reports.get(timeout=_SOON_S) == "the table is empty"


def test_what_moves_is_left_alone_until_it_stalls():
    reports: queue.Queue[int] = queue.Queue()
    reads = 0

    def progress() -> int:
        nonlocal reads
        reads += 1
        return min(reads, 100)

    with Watchdog(progress, lambda: "stalled", lambda _: reports.put(reads), patience_s=0.05):
        assert reports.get(timeout=_SOON_S) >= 105  # 100 reads that moved, and five or more that didn't


@pytest.mark.parametrize("broken", ["progress", "describe", "report"])
def test_it_survives_what_it_calls(broken, capfd):
    reports: queue.Queue[str] = queue.Queue()
    calls = 0

    def fails(*_: object) -> Any:
        nonlocal calls
        calls += 1
        if broken == "report" and calls > 1:
            reports.put("reported at last")
        raise RuntimeError("server gone")

    watchdog = Watchdog(
        fails if broken == "progress" else lambda: 0,
        fails if broken == "describe" else lambda: "stalled",
        fails if broken == "report" else reports.put,
        patience_s=0.02,
    )
    with watchdog:
        message = reports.get(timeout=_SOON_S)
    if broken == "describe":
        assert "RuntimeError: server gone" in message
    elif broken == "progress":
        assert message == "stalled"
    else:
        assert message == "reported at last"
        assert "server gone" in capfd.readouterr().err


def test_stop_ends_the_thread_and_a_hanging_describe_does_not_hold_it_up():
    before = threading.active_count()
    watchdog = Watchdog(lambda: 0, lambda: "", lambda _: None, patience_s=1000.0)
    watchdog.start()
    watchdog.stop()
    assert threading.active_count() == before

    hanging, release, reports = threading.Event(), threading.Event(), []

    def hang() -> str:
        hanging.set()
        release.wait(_SOON_S)
        return "too late"

    with Watchdog(lambda: 0, hang, reports.append, patience_s=0.01) as watchdog:
        assert hanging.wait(_SOON_S)
    release.set()
    watchdog._thread.join(_SOON_S)
    assert reports == []
