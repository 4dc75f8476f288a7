"""Own experience and recorded data in one batch."""

import json

import numpy as np
import pytest

from acme_ext.errors import UsageError
from acme_ext.learning.priorities import Errors, make_updater
from acme_ext.replay import FixedRows, Mixed, Source
from acme_ext.replay.table import RawBatch

SIZE = 1_000


class Own:
    """In the place of a dataset: rows of 9, from a table of 50 items each of which is twice as likely as another."""

    def __init__(self):
        self.given = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.given += 1
        rows = np.full((SIZE, 1), 9, np.uint8)
        rows.flags.writeable = False
        keys = np.arange(SIZE, dtype=np.uint64) + 2**63
        return RawBatch(rows, keys, np.full(SIZE, 0.04, np.float32), np.full(SIZE, 50))


def fixed(count, first=0, **options):
    return FixedRows(np.arange(first, first + count, dtype=np.uint8)[:, None], **options)


def mixed(share, *, own=None, **options):
    sources = {"own": Source(own or Own(), 1 - share), "demos": Source(fixed(5), share)}
    return Mixed(sources, SIZE, seed=1, **options)


def test_each_item_is_of_a_source_with_its_probability():
    sources = {
        "own": Source(Own(), 0.5),
        "few": Source(fixed(1, 20), 0.1),
        "many": Source(fixed(4, 30), 0.4),
    }
    batches = Mixed(sources, SIZE, seed=3)
    batch = next(batches)
    counts = np.bincount(batch.source)
    for count, share in zip(counts, (0.5, 0.1, 0.4), strict=True):
        assert abs(count / SIZE - share) < 4 * np.sqrt(share * (1 - share) / SIZE)
    np.testing.assert_array_equal(batch.rows[batch.source == 0], 9)
    np.testing.assert_array_equal(batch.rows[batch.source == 1], 20)
    assert set(batch.rows[batch.source == 2, 0]) == {30, 31, 32, 33}
    np.testing.assert_array_equal(batch.rows[batch.source == 2, 0] - 30, batch.keys[batch.source == 2])
    # 50 times 0.04, and rows that are all as likely as each other.
    np.testing.assert_allclose(batch.probability, np.where(batch.source == 0, 2, 1))
    assert batches.drawn == dict(zip(("own", "few", "many"), counts, strict=True))
    next(batches)
    assert sum(batches.drawn.values()) == 2 * SIZE


@pytest.mark.parametrize(("share", "counts"), [(0.0, [SIZE]), (1.0, [0, SIZE])])
def test_all_of_one(share, counts):
    own = Own()
    batch = next(mixed(share, own=own))
    assert np.bincount(batch.source).tolist() == counts
    assert own.given == 1  # the rate limit counts what is learned from, wherever it is from


def test_the_first_batches_are_recorded_data_alone():
    own = Own()
    batches = mixed(0.25, own=own, first_batches=2)
    for _ in range(2):
        assert next(batches).source.all()
    assert own.given == 0
    assert not next(batches).source.all()
    assert own.given == 1


def test_draws_repeat_and_go_on():
    def drawn(batches, count):
        return [(batch.rows.tolist(), batch.source.tolist()) for batch in (next(batches) for _ in range(count))]

    whole = drawn(mixed(0.3, first_batches=2), 4)
    first = mixed(0.3, first_batches=2)
    begun = drawn(first, 1)
    saved = json.loads(json.dumps(first.save()))
    second = mixed(0.3, first_batches=2)
    second.restore(saved)
    assert begun + drawn(second, 3) == whole
    assert sum(second.drawn.values()) == 4 * SIZE


@pytest.mark.parametrize("shares", [(1.5, -0.5), (0.5, 0.4)])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(UsageError, match=r"own .*, demos .*"):
        Mixed({"own": Source(Own(), shares[0]), "demos": Source(fixed(2), shares[1])}, SIZE, seed=0)


def test_rows_are_drawn_by_their_priorities():
    rng, count = np.random.default_rng(0), 700  # three groups, the last of which isn't full
    rows = FixedRows(np.zeros((count, 1), np.uint8), exponent=0.5, offset=1.0)
    index, weight = rows.draw(rng, 100_000)
    np.testing.assert_allclose(weight, 1)
    assert np.bincount(index, minlength=count).min() > 60  # 143 each, with a standard deviation of 12
    errors = np.zeros(count, np.float32)
    errors[[3, 699]] = 399 * 399 - 1, 299 * 299 - 1
    rows.update(np.arange(count), errors)
    total = 698 + 399 + 299
    index, weight = rows.draw(rng, 100_000)
    for row, root in ((3, 399), (699, 299), (400, 1)):
        share = root / total
        assert abs((index == row).mean() - share) < 4 * np.sqrt(share / 100_000)
        np.testing.assert_allclose(weight[index == row], count * share, rtol=1e-5)
    assert index.max() < count
    again = FixedRows(np.zeros((count, 1), np.uint8), exponent=0.5, offset=1.0)
    again.restore(json.loads(json.dumps(rows.save())))
    draws = [each.draw(np.random.default_rng(5), 50)[0] for each in (rows, again)]
    np.testing.assert_array_equal(*draws)


def test_errors_go_to_the_source_of_their_item():
    class Table:
        def __init__(self):
            self.priorities = {}

        threaded = False

        def update(self, keys, errors):
            self.priorities |= dict(zip(keys.tolist(), errors.tolist(), strict=True))

    demos, tables = fixed(4, exponent=1.0, offset=10.0), [Table(), Table()]
    updater = make_updater(tables, {1: demos})
    keys = np.array([7, 3, 8, 9, 1, 6], np.uint64)
    source = np.array([0, 1, 0, 0, 1, 0], np.uint8)
    updater.put(Errors(keys, np.arange(1, 7, dtype=np.float32), source))
    updater.close()
    assert [table.priorities for table in tables] == [{7: 1.0, 8: 3.0}, {9: 4.0, 6: 6.0}]
    assert demos.save() == [1, 5, 1, 2]


def test_sources_in_another_order_are_refused():
    with pytest.raises(UsageError, match="the first source must be a replay's dataset"):
        Mixed({"demos": Source(fixed(5), 0.5), "own": Source(Own(), 0.5)}, SIZE, seed=1)
    with pytest.raises(UsageError, match="and the others must be FixedRows"):
        Mixed({"own": Source(Own(), 0.5), "more": Source(Own(), 0.5)}, SIZE, seed=1)
