import shutil

import numpy as np
import pytest
from timelines import SPEC, Timeline, assert_items, read

from acme_ext.errors import RunError
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.reverb import server as server_module
from acme_ext.replay.transitions import TransitionReplay


def first_priority(reward, discount, extras_tm1, extras_t):
    return extras_tm1["place"] + 1


REPLAYS = {
    "uniform": TransitionReplay(SPEC, batch_size=4, limit=RateLimit(2.0, 10, 200.0), max_size=30),
    "prioritized": TransitionReplay(
        SPEC,
        batch_size=4,
        limit=RateLimit(2.0, 10, 200.0),
        max_size=30,
        order="prioritized",
        priority_offset=0.0,
        priority=first_priority,
    ),
    "queue": TransitionReplay(SPEC, batch_size=4, order="queue", max_size=100),
}


def fill(replay, server, steps=40):
    writer = replay.writer(server.table.sink(), 1)
    line = Timeline(np.full((steps + 1, 1), "go"), 0)
    line.feed(writer, with_extras=True)
    writer.flush()
    writer.wait()
    writer.close()
    return line.items(1, 0.99)


def sample(replay, server, count):
    samples = list(server.client.sample(replay.table, count, emit_timesteps=False))
    rows = np.stack([np.asarray(s.data[0]).reshape(-1) for s in samples])
    return read(replay.decode(rows)), [s.info for s in samples]


@pytest.mark.parametrize("kind", REPLAYS)
def test_a_checkpoint_holds_items_priorities_and_counts(serve, tmp_path, kind):
    replay = REPLAYS[kind]
    server = serve(replay, scratch=tmp_path)
    items = fill(replay, server)
    _, infos = sample(replay, server, 12)
    if kind == "prioritized":
        server.client.mutate_priorities(replay.table, {infos[0].key: 1e6})
    assert server.table.counts()[:2] == (40, 12)
    server.checkpoint(tmp_path / "saved")
    described = server.table.describe()
    server.close()

    again = serve(replay, scratch=tmp_path, restore=tmp_path / "saved")
    assert again.table.counts()[:2] == (40, 12)
    assert again.table.describe() == described
    if kind == "queue":
        got, _ = sample(replay, again, 28)
        assert_items(got, items[12:])  # from where it was, in its order
        assert again.table.counts()[:2] == (40, 40)
        return
    got, infos = sample(replay, again, 100)
    for item, info in zip(got, infos, strict=True):
        assert item[:4] == items[item.start][:4]
        assert item.start >= 10  # the oldest ten had left
        if kind == "prioritized":
            assert info.priority in (100.0 * item.start + 1, 1e6)
    if kind == "prioritized":
        assert 1e6 in {info.priority for info in infos}


def test_a_restored_table_takes_new_items(serve, tmp_path):
    replay = REPLAYS["uniform"]
    server = serve(replay)
    fill(replay, server)
    server.checkpoint(tmp_path / "saved")
    server.close()
    again = serve(replay, restore=tmp_path / "saved")
    fill(replay, again, 7)
    assert again.table.counts()[:2] == (47, 0)
    assert "holds 30 of 30 items" in again.table.describe()


def test_explains_why_nothing_moves(serve):
    replay = REPLAYS["uniform"]
    server = serve(replay)
    fill(replay, server, 3)
    assert server.table.describe() == (
        "table 'transitions' holds 3 of 30 items, 3 inserted and 0 sampled, sampling waits for 10 items"
    )
    fill(replay, server, 9)
    sample(replay, server, 5)
    assert server.table.describe() == (
        "table 'transitions' holds 12 of 30 items, 12 inserted and 5 sampled, "
        "inserts * 2 - samples = 19: sampling waits below -180, inserting above 220"
    )


def test_a_server_that_does_not_answer_is_said_to(serve, monkeypatch):
    monkeypatch.setattr(server_module, "_DESCRIBE_S", 1)
    server = serve(REPLAYS["uniform"])
    server.close()
    assert server.table.describe() == "the replay does not answer (DeadlineExceededError)"


def test_leaves_nothing_in_the_scratch_folder(serve, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    replay = REPLAYS["uniform"]
    server = serve(replay, scratch=scratch)
    assert list(scratch.iterdir())
    server.checkpoint(tmp_path / "saved")
    server.close()
    assert not list(scratch.iterdir())
    assert list((tmp_path / "saved").iterdir())


@pytest.mark.parametrize("harm", ["missing", "empty", "DONE", "tables.tfrecord", "chunks.tfrecord", "truncated"])
def test_a_checkpoint_that_is_not_whole_is_told(serve, tmp_path, harm):
    replay, saved, scratch = REPLAYS["uniform"], tmp_path / "saved", tmp_path / "scratch"
    scratch.mkdir()
    server = serve(replay)
    fill(replay, server)
    server.checkpoint(saved)
    if harm in ("missing", "empty"):
        shutil.rmtree(saved)
        if harm == "empty":
            saved.mkdir()
    elif harm == "truncated":
        chunks = saved / "chunks.tfrecord"
        chunks.write_bytes(chunks.read_bytes()[: chunks.stat().st_size // 2])
    else:
        (saved / harm).unlink()
    with pytest.raises(RunError, match="the replay server did not start: "):
        serve(replay, scratch=scratch, restore=saved)
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"table": "other"}, ""), ({"rows_per_item": 4}, "table 'transitions' with items of another shape")],
)
def test_other_tables_than_the_checkpoints_are_told(serve, tmp_path, fields, said):
    server = serve(REPLAYS["uniform"])
    server.checkpoint(tmp_path / "saved")
    other = TransitionReplay(SPEC, batch_size=4, limit=RateLimit(2.0, 10, 200.0), **fields)
    with pytest.raises(RunError, match=f"the replay server did not start: .*{said}"):
        serve(other, restore=tmp_path / "saved")
