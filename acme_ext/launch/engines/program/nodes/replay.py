"""The node of a replay shard."""

import pathlib
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import launchpad as lp
from launchpad import address as lp_address
from launchpad.nodes import base

from acme_ext.launch.engines.program.nodes import stops
from acme_ext.replay.server import ReplayServer, block_of, describe_tables
from acme_ext.utils.rundir import RunDirectory

_LOOK_S = 0.05
_INFO_S = 2  # for a server's answer about its counts


class ReplayHandle(base.Handle):
    """A Launchpad handle, which becomes a `reverb.Client` in the nodes that use a replay node."""

    def __init__(self, address: lp_address.Address):
        self._address = address

    def dereference(self) -> Any:
        import reverb

        return reverb.Client(self._address.resolve())


class ReplayNode(lp.PyNode):
    """A Reverb server as a node.

    It replaces Launchpad's own Reverb node, which imports Reverb in the launcher and can't restore a checkpoint.

    Args:
        tables: a function that makes the `reverb.Table`s in the node.
        scratch: folder for Reverb's temporary files.
        restore: folder of a checkpoint to start from.
    """

    def __init__(self, tables: Callable[[], list], scratch: pathlib.Path, restore: pathlib.Path | None):
        super().__init__(self.run)
        self._tables, self._scratch, self._restore = tables, scratch, restore
        self._address = lp_address.Address("reverb")
        self.allocate_address(self._address)

    def create_handle(self) -> ReplayHandle:
        return self._track_handle(ReplayHandle(self._address))

    def run(self) -> None:
        port = lp_address.get_port_from_address(self._address.resolve())
        server = ReplayServer(self._tables(), scratch=self._scratch, restore=self._restore, port=port)
        try:
            lp.wait_for_stop()
            while stops.stopped_together() and RunDirectory(self._scratch.parent, create=False).status.exists():
                time.sleep(_LOOK_S)  # the coordinator has not ended the run
        finally:
            server.close()


class RemoteReplay:
    """Access to all shards of a replay over the network.

    Args:
        clients: a Reverb client for each shard.
        table: the table's name.
    """

    def __init__(self, clients: Sequence[Any], table: str):
        self._clients, self._table = clients, table

    def checkpoint(self, folder: pathlib.Path) -> None:
        """Writes the shards' contents in parallel to folders `0, 1, ...` in a new folder."""
        folder.mkdir()

        def write(shard: int, client: Any) -> None:
            shutil.move(client.checkpoint(), shard_folder(folder, shard))

        with futures.ThreadPoolExecutor(len(self._clients)) as pool:
            list(pool.map(write, *zip(*enumerate(self._clients), strict=True)))

    def counts(self) -> dict[str, float]:
        """Returns the replay's size, where a block counts as its number of rows, and its samples per insert.

        Returns nothing if a shard doesn't answer, for example while it copies a large table for a checkpoint.
        """
        size = inserts = samples = 0
        for client in self._clients:
            try:
                info = client.server_info(timeout=_INFO_S)[self._table]
            except Exception:
                return {}
            size += block_of(info) * info.current_size
            inserts += info.rate_limiter_info.insert_stats.completed
            samples += info.rate_limiter_info.sample_stats.completed
        return {"replay_size": size, "samples_per_insert": samples / max(1, inserts)}

    def describe(self) -> str:
        """Returns the state of every shard's rate limiter, in words."""
        return "; ".join(describe_tables(client) for client in self._clients)


def shard_folder(folder: pathlib.Path, shard: int) -> pathlib.Path:
    """Returns a shard's folder in a checkpoint's replay folder."""
    return folder / str(shard)
