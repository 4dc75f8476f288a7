"""Opens the tables of replays. Only this module knows which kinds there are: `reverb` and `embedded`."""

import pathlib
from collections.abc import Callable
from typing import Any, Literal

from acme_ext.errors import UsageError
from acme_ext.replay import blocks
from acme_ext.replay.base import Replay
from acme_ext.replay.table import RemoteTable, Store
from acme_ext.utils import availability

TableKind = Literal["reverb", "embedded"]
"""`reverb`: a Reverb server. `embedded`: arrays of this package, on any Python; a seed determines what is drawn."""


def kind_of(table: str) -> TableKind:
    """Returns the kind that `Experiment.table` means: with `auto`, `reverb` where it is installed.

    Raises:
        UsageError: Reverb is not installed.
    """
    there = availability.has_reverb()
    if table == "reverb" and not there:
        raise UsageError(
            "table is 'reverb', which is not installed here (it needs CPython 3.10 on x86-64 Linux): leave it 'auto', "
            "or give 'embedded' (--table embedded)."
        )
    return "reverb" if there and table != "embedded" else "embedded"


def fit(replay: Replay, kind: TableKind) -> Replay:
    """Returns a replay's settings for a kind of table: only Reverb stores several rows in an item."""
    return replay if kind == "reverb" else blocks.singly(replay)


def import_libraries(kind: TableKind) -> None:
    """Imports what a kind of table needs. For Reverb, this takes seconds, so a process can do it early."""
    if kind == "reverb":
        from acme_ext.replay.reverb import server

        server.import_libraries()


def open_store(
    replay: Replay,
    kind: TableKind,
    *,
    seed: int = 0,
    scratch: pathlib.Path | None = None,
    restore: pathlib.Path | None = None,
    report: Callable[[str], Any] = print,
) -> Store:
    """Opens a replay's table in this process.

    Args:
        replay: the settings.
        kind: the kind of table.
        seed: seeds what an embedded table draws.
        scratch: an existing folder for Reverb's temporary files, preferably on the checkpoints' file system; None for
            the system's default.
        restore: a folder that `checkpoint` wrote, of the same kind and settings; its contents are restored.
        report: called with warnings.

    Raises:
        RunError: the table can't be opened, or `restore` is incomplete or holds another table.
    """
    if kind == "reverb":
        from acme_ext.replay.reverb.store import ReverbStore

        return ReverbStore(replay, scratch=scratch, restore=restore)
    from acme_ext.replay.embedded.store import EmbeddedStore

    return EmbeddedStore(replay, seed=seed, restore=restore, report=report)


def serve(
    replay: Replay,
    kind: TableKind,
    address: str,
    token: bytes,
    *,
    scratch: pathlib.Path | None = None,
    restore: pathlib.Path | None = None,
) -> Store:
    """Opens a replay's table in this process, for other processes; see `connect` and `open_store`.

    Args:
        replay: the settings.
        kind: the kind of table.
        address: `host:port` to listen on. A Reverb server listens on every host's name.
        token: the secret that other processes must send to an embedded table.
        scratch, restore: see `open_store`.
    """
    host, _, port = address.rpartition(":")
    if kind == "reverb":
        from acme_ext.replay.reverb.store import ReverbStore

        return ReverbStore(replay, scratch=scratch, restore=restore, port=int(port))
    from acme_ext.replay.served.server import ServedStore

    return ServedStore(replay, host, int(port), token, restore=restore)


def connect(replay: Replay, kind: TableKind, address: str, token: bytes) -> RemoteTable:
    """Returns the table that a process serves at an address, see `serve`; it may start later."""
    if kind == "reverb":
        from acme_ext.replay.reverb.store import RemoteReverbTable

        return RemoteReverbTable(replay, address)
    from acme_ext.replay.served.client import ServedTable

    return ServedTable(replay, address, token)
