"""What the tests of runs share."""

from pathlib import Path

import pytest

from acme_ext.launch.engines import in_process
from acme_ext.replay.server import ReplayServer


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

    monkeypatch.setattr(in_process, "ReplayServer", Recorded)
    return seen
