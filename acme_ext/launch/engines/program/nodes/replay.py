"""The node of a replay shard."""

import pathlib
import time
from collections.abc import Sequence
from concurrent import futures

from acme_ext.launch.engines.program.nodes import stops
from acme_ext.launch.hosts import launchpad as lp
from acme_ext.replay.base import Replay
from acme_ext.replay.stores import TableKind, connect, serve
from acme_ext.replay.table import RemoteTable
from acme_ext.utils.rundir import RunDirectory

_LOOK_S = 0.05


class ReplayHandle(lp.Handle):
    """A Launchpad handle, which becomes a `replay.table.RemoteTable` in the nodes that use a replay node."""

    def __init__(self, replay: Replay, kind: TableKind, token: bytes, address: lp.Address):
        self._replay, self._token, self._address = replay, token, address
        self._table_kind: TableKind = kind

    def dereference(self) -> RemoteTable:
        return connect(self._replay, self._table_kind, self._address.resolve(), self._token)


class ReplayNode(lp.PyNode):
    """A shard of the replay as a node.

    It replaces Launchpad's own Reverb node, which imports Reverb in the launcher and can't restore a checkpoint.

    Args:
        replay: the shard's settings.
        kind: the kind of table.
        token: the secret that other nodes must send to an embedded table.
        scratch: folder for Reverb's temporary files.
        restore: folder of a checkpoint to start from.
    """

    def __init__(
        self, replay: Replay, kind: TableKind, token: bytes, scratch: pathlib.Path, restore: pathlib.Path | None
    ):
        super().__init__(self.run)
        self._replay, self._token = replay, token
        self._table_kind: TableKind = kind
        self._scratch, self._restore = scratch, restore
        self._address = lp.Address("reverb")
        self.allocate_address(self._address)

    def create_handle(self) -> ReplayHandle:
        return self._track_handle(ReplayHandle(self._replay, self._table_kind, self._token, self._address))

    def run(self) -> None:
        address = self._address.resolve()
        store = serve(
            self._replay, self._table_kind, address, self._token, scratch=self._scratch, restore=self._restore
        )
        try:
            lp.wait_for_stop()
            while stops.stopped_together() and RunDirectory(self._scratch.parent, create=False).status.exists():
                time.sleep(_LOOK_S)  # the coordinator has not ended the run
        finally:
            store.close()


class RemoteReplay:
    """Access to all shards of a replay over the network.

    Args:
        tables: the shards' tables.
    """

    def __init__(self, tables: Sequence[RemoteTable]):
        self._tables = tables

    def checkpoint(self, folder: pathlib.Path) -> None:
        """Writes the shards' contents in parallel to folders `0, 1, ...` in a new folder."""
        folder.mkdir()

        def write(shard: int, table: RemoteTable) -> None:
            table.checkpoint(shard_folder(folder, shard))

        with futures.ThreadPoolExecutor(len(self._tables)) as pool:
            list(pool.map(write, *zip(*enumerate(self._tables), strict=True)))

    def counts(self) -> dict[str, float]:
        """Returns the replay's size in rows, and its samples per insert.

        Returns nothing if a shard doesn't answer, for example while it copies a large table for a checkpoint.
        """
        try:
            inserted, sampled, size = (sum(each) for each in zip(*(t.counts() for t in self._tables), strict=True))
        except Exception:
            return {}
        return {"replay_size": size, "samples_per_insert": sampled / max(1, inserted)}

    def describe(self) -> str:
        """Returns the state of every shard's rate limiter, in words."""
        return "; ".join(table.describe() for table in self._tables)


def shard_folder(folder: pathlib.Path, shard: int) -> pathlib.Path:
    """Returns a shard's folder in a checkpoint's replay folder."""
    return folder / str(shard)
