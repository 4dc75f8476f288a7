"""What the tests of runs share."""

from pathlib import Path
from typing import Any

import pytest

from acme_ext.launch.engines import in_process


class Counts:
    """What the tables of the runs of a test had counted at each checkpoint: (items inserted, sampled)."""

    def __init__(self) -> None:
        self.saved: list[tuple[int, int]] = []


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Records the replay's counts whenever a run saves itself."""
    seen, open_store = Counts(), in_process.open_store

    def recorded(*arguments: Any, **options: Any) -> Any:
        store = open_store(*arguments, **options)
        checkpoint = store.checkpoint

        def save(folder: Path) -> None:
            checkpoint(folder)
            seen.saved.append(store.table.counts()[:2])

        store.checkpoint = save
        return store

    monkeypatch.setattr(in_process, "open_store", recorded)
    return seen
