import jax
import numpy as np
import pytest

from acme_ext.utils.packing import Packing


def nest(rows):
    rng = np.random.default_rng(rows)
    return {
        "action": rng.integers(5, size=rows).astype(np.int32),
        "extras": (
            rng.normal(size=(rows, 2, 3)).astype(np.float32),
            np.where(rng.random(rows) < 0.5, np.nan, np.float32(1)).astype(np.float32),
            rng.random((rows, 2)) < 0.5,
            rng.integers(2**32, size=(rows, 1), dtype=np.uint32),
            np.zeros((rows, 0), np.float32),
            rng.integers(256, size=(rows, 4)).astype(np.uint8),
        ),
    }


def check(arrays, expected):
    assert jax.tree.structure(arrays) == jax.tree.structure(expected)
    for array, wanted in zip(jax.tree.leaves(arrays), jax.tree.leaves(expected), strict=True):
        assert isinstance(array, np.ndarray)
        assert array.dtype == wanted.dtype
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, wanted)


def test_gives_back_what_was_packed_whatever_the_number_of_rows():
    packing = Packing()
    compiled = jax.jit(packing.pack)
    for rows in (3, 8, 3, 1):
        packed = compiled(nest(rows))
        assert len(packed) == 1 + 3  # booleans, bytes and what is empty are not packed
        check(packing.unpack(packed), nest(rows))


def test_gives_back_the_first_rows():
    packing = Packing()
    packed = jax.jit(packing.pack)(nest(8))
    check(packing.unpack(packed, 5), jax.tree.map(lambda leaf: leaf[:5], nest(8)))


@pytest.mark.parametrize("arrays", [(), np.zeros((4, 2), np.uint8), (np.zeros(4, np.bool_), np.ones(4, np.int32))])
def test_a_single_array_of_words_stays_as_it_is(arrays):
    packing = Packing()
    packed = jax.jit(packing.pack)(arrays)
    assert len(packed) == len(jax.tree.leaves(arrays))
    check(packing.unpack(packed), arrays)
    check(packing.unpack(packed, 2), jax.tree.map(lambda leaf: leaf[:2], arrays))
