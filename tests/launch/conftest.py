"""What the tests of runs share."""

import faulthandler
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from acme_ext.launch import local
from acme_ext.replay.server import ReplayServer
from acme_ext.utils import plots

_LIMIT_S = 150  # what takes 10 s takes ten times that on a machine that others use too


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """Fails a test that hangs; one that hangs in compiled code, where no signal is seen, ends its process."""

    def fail(number: int, frame: object) -> None:
        faulthandler.dump_traceback()
        pytest.fail(f"it hung for {_LIMIT_S} s")

    previous = signal.signal(signal.SIGALRM, fail)
    signal.alarm(_LIMIT_S)
    faulthandler.dump_traceback_later(_LIMIT_S + 20, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


class Counts:
    """What the replay servers of the runs of a test had counted at each checkpoint: (items inserted, sampled)."""

    def __init__(self) -> None:
        self.saved: list[tuple[int, int]] = []


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Records the replay's counts whenever a run saves itself."""
    seen = Counts()

    class Recorded(ReplayServer):
        def checkpoint(self, folder: Path) -> None:
            super().checkpoint(folder)
            (table,) = self.client.server_info()
            seen.saved.append(self.counts(table))

    monkeypatch.setattr(local, "ReplayServer", Recorded)
    return seen


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the figure at a run's end out, which takes a second."""
    monkeypatch.setattr(plots, "learning_curves", lambda runs, out, x="environment_steps": out)
