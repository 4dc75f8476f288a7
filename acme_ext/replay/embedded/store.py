"""Opens, saves and restores an embedded table."""

import pathlib
from collections.abc import Callable
from typing import Any

from acme_ext.errors import RunError
from acme_ext.replay import blocks
from acme_ext.replay.base import Replay
from acme_ext.replay.embedded.compressed import make_rows
from acme_ext.replay.embedded.queue import Queue
from acme_ext.replay.embedded.table import EmbeddedTable, OtherTableError, Ring


class EmbeddedStore:
    """A replay's table in this process's memory.

    Args:
        replay: the settings.
        seed: seeds what is drawn.
        restore: a folder that `checkpoint` wrote.
        report: called with warnings.
        packed: see `make_rows`.

    Raises:
        RunError: `restore` is no whole checkpoint of an embedded table, or is one of another table; or there is not
            enough memory for the priorities.
    """

    def __init__(
        self,
        replay: Replay,
        *,
        seed: int = 0,
        restore: pathlib.Path | None = None,
        report: Callable[[str], Any] = print,
        packed: bool = False,
    ):
        replay = blocks.singly(replay)
        self.table: EmbeddedTable
        if replay.fifo:
            self.table = Queue(replay)
        else:
            try:
                self.table = Ring(replay, seed, make_rows(replay.nbytes, replay.max_size, report, packed=packed))
            except MemoryError as error:
                raise RunError(f"the replay can't be made: {error}. Choose a smaller replay.max_size.") from error
        if restore is None:
            return
        try:
            self.table.load(restore)
        except OtherTableError as error:
            raise RunError(
                f"the replay was not restored: {restore} holds another table ({error}). Another version of acme_ext, "
                "or other settings, wrote it."
            ) from error
        except (OSError, KeyError, ValueError) as error:
            raise RunError(f"the replay was not restored: {restore} is not a whole checkpoint of one.") from error

    def checkpoint(self, folder: pathlib.Path) -> None:
        """Writes the table's contents to a new folder."""
        folder.mkdir()
        self.table.save(folder)

    def close(self) -> None:
        """Does nothing: the memory is freed with this object."""
