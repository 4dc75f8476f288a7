"""All shards of a replay, from outside."""

import threading

from acme_ext.launch.engines.program.nodes.replay import RemoteReplay, shard_folder


class Shard:
    """A Reverb client that writes a checkpoint when all others do so too."""

    def __init__(self, folder, together):
        self._folder, self._together = folder, together

    def checkpoint(self):
        self._together.wait()
        self._folder.mkdir()
        (self._folder / "DONE").write_text(self._folder.name)
        return str(self._folder)


def test_shards_write_their_checkpoints_at_the_same_time(tmp_path):
    together = threading.Barrier(3, timeout=30)
    RemoteReplay([Shard(tmp_path / f"shard {i}", together) for i in range(3)], "t").checkpoint(tmp_path / "all")
    for shard in range(3):
        assert (shard_folder(tmp_path / "all", shard) / "DONE").read_text() == f"shard {shard}"
