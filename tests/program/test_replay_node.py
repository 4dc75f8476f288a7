"""All shards of a replay, from outside."""

import threading

from acme_ext.launch.engines.program.nodes.replay import RemoteReplay, shard_folder
from acme_ext.replay.table import Counts


class Shard:
    """A table that writes a checkpoint when all others do so too."""

    def __init__(self, name, together):
        self._name, self._together = name, together

    def checkpoint(self, folder):
        self._together.wait()
        folder.mkdir()
        (folder / "DONE").write_text(self._name)


class Counted:
    def __init__(self, *counts):
        self._counts = counts

    def counts(self):
        if not self._counts:
            raise TimeoutError
        return Counts(*self._counts)


def test_shards_write_their_checkpoints_at_the_same_time(tmp_path):
    together = threading.Barrier(3, timeout=30)
    RemoteReplay([Shard(f"shard {i}", together) for i in range(3)]).checkpoint(tmp_path / "all")
    for shard in range(3):
        assert (shard_folder(tmp_path / "all", shard) / "DONE").read_text() == f"shard {shard}"


def test_counts_are_those_of_all_shards_that_answer():
    assert RemoteReplay([Counted(10, 40, 8), Counted(30, 40, 20)]).counts() == {
        "replay_size": 28,
        "samples_per_insert": 2.0,
    }
    assert RemoteReplay([Counted(10, 40, 8), Counted()]).counts() == {}
