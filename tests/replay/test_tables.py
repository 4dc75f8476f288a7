"""What every kind of table does, with the same test for each."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from timelines import SPEC

from acme_ext.errors import RunError, UsageError
from acme_ext.replay import stores
from acme_ext.replay.embedded import compressed
from acme_ext.replay.embedded import rows as rows_module
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.stores import open_store, serve
from acme_ext.replay.table import Batches, Store
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.utils.calls import TOKEN_BYTES

KINDS = ("embedded", "served", "reverb")
FREE = RateLimit()
readers: list[Batches] = []


def replay(**fields: Any) -> TransitionReplay:
    given = {"batch_size": 4, "limit": FREE, "max_size": 30, "rows_per_item": 1, **fields}
    if given.get("order") == "queue":
        given["limit"] = None
    return TransitionReplay(SPEC, **given)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "reverb":
        pytest.importorskip("reverb")
    return request.param


@pytest.fixture
def opened(kind: str) -> Iterator[Callable[..., Store]]:
    """Opens a replay's table of this kind, which is closed with the test."""
    made: list[Store] = []

    def start(settings: TransitionReplay, **options: Any) -> Store:
        if kind == "served":
            made.append(serve(settings, "embedded", "localhost:0", bytes(TOKEN_BYTES), **options))
        else:
            made.append(open_store(settings, kind, **options))  # type: ignore[arg-type]
        return made[-1]

    yield start
    while readers:
        readers.pop().close(wake=True)
    for store in made:
        store.close()


def insert(store: Store, numbers: Any, errors: Any = None) -> None:
    """Inserts a row for each number, which fills it."""
    sink, table = store.table.sink(), store.table
    rows = np.repeat(np.array(numbers, np.uint8)[:, None], table._replay.nbytes, axis=1)  # type: ignore[attr-defined]
    sink.append(rows, None if errors is None else np.array(errors, np.float32))
    sink.flush(0, lambda: None)
    sink.close()


def draw(store: Store, batches: int = 1) -> Any:
    """Returns the next `batches` batches in one, drawn by a new reader, which stays open until the test's end."""
    readers.append(store.table.batches(batches))
    return next(readers[-1])


def numbers_of(batch: Any) -> list[int]:
    assert (batch.rows == batch.rows[:, :1]).all()
    return batch.rows[:, 0].tolist()


def test_counts_go_by_rows(opened):
    store = opened(replay())
    assert store.table.counts() == (0, 0, 0)
    insert(store, range(40))
    assert store.table.counts() == (40, 0, 30)
    if store.table.ahead == 0:  # another reads ahead, so that the number is not determined
        draw(store, 2)
        assert store.table.counts() == (40, 8, 30)


def test_the_oldest_rows_go_first(opened):
    store = opened(replay(batch_size=200))
    insert(store, range(40))
    batch = draw(store)
    assert set(numbers_of(batch)) == set(range(10, 40))
    np.testing.assert_allclose(batch.probability, 1 / 30, rtol=1e-6)
    assert (batch.size == 30).all()


def test_a_key_belongs_to_one_row(opened):
    store = opened(replay(batch_size=200))
    insert(store, range(35))
    batch = draw(store)
    pairs = set(zip(batch.keys.tolist(), numbers_of(batch), strict=True))
    assert batch.keys.dtype == np.uint64
    assert len(pairs) == len({key for key, _ in pairs}) == len({number for _, number in pairs})


def test_a_queue_gives_each_row_once_in_order(opened):
    store = opened(replay(order="queue", max_size=100))
    insert(store, range(12))
    dataset = store.table.batches()
    found = [number for _ in range(3) for number in numbers_of(next(dataset))]
    dataset.close(wake=True)
    assert found == list(range(12))


def test_a_queue_loses_no_row(opened):
    store = opened(replay(order="queue", max_size=5))
    sink = store.table.sink()
    rows = np.repeat(np.arange(12, dtype=np.uint8)[:, None], store.table._replay.nbytes, axis=1)
    assert sink.append(rows, None) == 12
    dataset = store.table.batches()
    found = [number for _ in range(3) for number in numbers_of(next(dataset))]
    dataset.close(wake=True)
    sink.close()
    assert found == list(range(12))


@pytest.mark.parametrize("exponent", [0.6, 1.0])
def test_probabilities_follow_the_priorities(opened, exponent):
    store = opened(replay(order="prioritized", batch_size=4000, priority_exponent=exponent, priority_offset=0.5))
    errors = np.array([0, 1, 2, 3.5, 7])
    insert(store, range(5), errors)
    batch = draw(store)
    shares = (errors + 0.5) ** exponent
    shares /= shares.sum()
    found = np.array(numbers_of(batch))
    np.testing.assert_allclose(batch.probability, shares[found], rtol=1e-4)
    np.testing.assert_allclose(np.bincount(found, minlength=5) / 4000, shares, atol=0.035)


def test_the_last_error_of_a_key_counts_and_keys_that_are_gone_are_ignored(opened):
    store = opened(replay(order="prioritized", batch_size=400, priority_exponent=1.0, priority_offset=0.0, max_size=3))
    insert(store, range(3), np.ones(3))
    batch = draw(store)
    key = dict(zip(numbers_of(batch), batch.keys, strict=True))
    insert(store, [3], [1.0])  # takes the place of 0
    keys = np.array([key[0], key[1], key[2], key[1]], np.uint64)
    store.table.update(keys, np.array([100, 50, 3, 2], np.float32))
    found = draw(store)
    probability = dict(zip(numbers_of(found), found.probability, strict=True))
    assert {number: round(float(p), 4) for number, p in probability.items()} == {1: 0.3333, 2: 0.5, 3: 0.1667}


def test_first_errors_that_are_no_numbers_count_as_zero(opened):
    store = opened(replay(order="prioritized", batch_size=100, priority_exponent=1.0, priority_offset=1.0))
    insert(store, range(3), [np.nan, 1.0, np.inf])
    found = draw(store)
    probability = dict(zip(numbers_of(found), found.probability.tolist(), strict=True))
    assert probability == {0: 0.25, 1: 0.5, 2: 0.25}


def test_rows_per_item_means_the_same_rows(opened):
    store = opened(replay(batch_size=16, rows_per_item=8, limit=RateLimit(2.0, 16, 64.0), max_size=160))
    insert(store, range(48))
    batch = draw(store)
    assert len(batch.rows) == 16
    np.testing.assert_allclose(batch.probability, 1 / batch.size, rtol=1e-6)


@pytest.mark.parametrize("order", ["uniform", "prioritized", "queue"])
def test_a_checkpoint_holds_rows_counts_and_priorities(opened, tmp_path, order):
    settings = replay(order=order, priority_exponent=1.0, priority_offset=0.0, batch_size=6)
    store = opened(settings, scratch=tmp_path)
    errors = np.arange(1, 41) if order == "prioritized" else None
    count = 24 if order == "queue" else 40
    insert(store, range(count), errors)
    store.checkpoint(tmp_path / "saved")
    again = opened(settings, restore=tmp_path / "saved")
    assert again.table.counts() == store.table.counts()
    if order == "queue":
        assert numbers_of(draw(again)) == list(range(6))
        return
    batch = draw(again, 50)
    assert set(numbers_of(batch)) <= set(range(10, 40))
    if order == "prioritized":
        expected = (np.array(numbers_of(batch)) + 1) / np.arange(11, 41).sum()
        np.testing.assert_allclose(batch.probability, expected, rtol=1e-4)
    insert(again, [99], None if errors is None else [1.0])
    assert again.table.counts()[0] == 41


@pytest.mark.parametrize("harm", ["missing", "empty", "other rows"])
def test_a_checkpoint_that_can_not_be_restored_is_refused(opened, tmp_path, harm):
    settings = replay()
    store = opened(settings, scratch=tmp_path)
    insert(store, range(10))
    saved = tmp_path / "saved"
    if harm == "empty":
        saved.mkdir()
    if harm == "other rows":
        store.checkpoint(saved)
        settings = dataclasses.replace(settings, keeps_one_step=True)
    with pytest.raises(RunError, match="saved"):
        opened(settings, restore=saved)


# What is particular to the embedded table ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "allowed"),
    [(FREE, True), (RateLimit(min_size=9), False), (RateLimit(1.0, 4, 1.0), True), (RateLimit(0.25, 4, 1.0), False)],
)
def test_a_batch_that_the_rate_limit_does_not_allow_is_an_error(limit, allowed):
    store = open_store(replay(limit=limit), "embedded")
    insert(store, range(8))
    if allowed:
        assert len(draw(store).rows) == 4
    else:
        with pytest.raises(RuntimeError, match="rate limit"):
            draw(store)


@pytest.mark.parametrize("order", ["uniform", "prioritized", "queue"])
@pytest.mark.parametrize("large", [False, True])
def test_a_seed_determines_what_is_drawn_also_after_a_restore(tmp_path, monkeypatch, order, large):
    monkeypatch.setattr(compressed, "_LARGE", 1 if large else 4096)
    settings = TransitionReplay(
        SPEC, batch_size=4, order=order, limit=None if order == "queue" else FREE, max_size=20, table="t"
    )

    def course(store: Store, begin: int, end: int) -> list[Any]:
        drawn = []
        for step in range(begin, end):
            insert(store, range(step, step + 6), np.arange(6) if order == "prioritized" else None)
            batch = draw(store)
            store.table.update(batch.keys, batch.keys.astype(np.float32))
            drawn.append([part.tolist() for part in batch[:3]])
        return drawn

    whole = course(open_store(settings, "embedded", seed=3), 0, 20)
    first = open_store(settings, "embedded", seed=3)
    halves = course(first, 0, 10)
    first.checkpoint(tmp_path / "saved")
    again = open_store(settings, "embedded", seed=99, restore=tmp_path / "saved")
    assert halves + course(again, 10, 20) == whole
    if order == "uniform":
        assert course(open_store(settings, "embedded", seed=4), 0, 20) != whole


def test_auto_is_reverb_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(stores.availability, "has_reverb", lambda: False)
    assert stores.kind_of("auto") == stores.kind_of("embedded") == "embedded"
    with pytest.raises(UsageError, match="--table embedded"):
        stores.kind_of("reverb")
    monkeypatch.setattr(stores.availability, "has_reverb", lambda: True)
    assert (stores.kind_of("auto"), stores.kind_of("embedded")) == ("reverb", "embedded")


def test_a_reverb_checkpoint_is_none_of_an_embedded_table(tmp_path: pathlib.Path):
    (tmp_path / "tables.tfrecord").write_bytes(b"x")
    with pytest.raises(RunError, match="is not a whole checkpoint"):
        open_store(replay(), "embedded", restore=tmp_path)


@pytest.mark.parametrize("random", [False, True])
def test_large_rows_are_compressed_if_that_makes_them_smaller(random):
    rng, nbytes = np.random.default_rng(0), 10_000
    store = compressed.make_rows(nbytes, 100, print)
    rows = rng.integers(256 if random else 2, size=(40, nbytes)).astype(np.uint8)
    for start in range(0, 40, 8):
        store.write(np.arange(start, start + 8), rows[start : start + 8])
    slots = np.array([3, 39, 0, 3])
    np.testing.assert_array_equal(store.read(slots), rows[slots])
    held = sum(map(len, store._rows))  # type: ignore[attr-defined]
    assert held == 40 * nbytes if random else held < 10 * nbytes


@pytest.mark.parametrize("nbytes", [40, 10_000])
def test_too_little_memory_is_told_before_the_table_is_full(monkeypatch, nbytes):
    said: list[str] = []
    monkeypatch.setattr(rows_module, "free_memory", lambda: 20 * nbytes)
    monkeypatch.setattr(rows_module, "FIRST_ROWS", 4)
    monkeypatch.setattr(compressed, "FIRST_ROWS", 4)
    store = compressed.make_rows(nbytes, 100, said.append)
    rows = np.random.default_rng(0).integers(256, size=(30, nbytes)).astype(np.uint8)
    for start in range(0, 30, 5):
        store.write(np.arange(start, start + 5), rows[start : start + 5])
    assert len(said) == 1
    assert "choose a smaller replay.max_size" in said[0]


def test_priorities_that_do_not_fit_into_memory_are_an_error():
    with pytest.raises(RunError, match=r"smaller replay\.max_size"):
        open_store(replay(order="prioritized", max_size=10**15), "embedded", report=lambda text: None)
