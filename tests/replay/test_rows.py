from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tree
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from acme_ext.replay.rows import Layout


class Field(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype


class Pair(NamedTuple):
    a: Any
    b: Any


DTYPES = [np.dtype(t) for t in (np.uint8, np.int8, np.bool_, np.int16, np.float16, np.int32, np.uint32, np.float32)]
SHAPES = st.one_of(st.just(()), hnp.array_shapes(max_dims=3, max_side=4), st.just((12, 11, 3)), st.just((0,)))
FIELDS = st.builds(Field, SHAPES, st.sampled_from(DTYPES))


def nests(leaves):
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3),
            st.lists(inner, min_size=1, max_size=3),
            st.builds(Pair, inner, inner),
        ),
        max_leaves=5,
    )


def spec_of(nest):
    """The nest with an array, which has a shape and a dtype, for each field."""
    if isinstance(nest, Field):
        return np.zeros(nest.shape, nest.dtype)
    if isinstance(nest, dict):
        return {name: spec_of(value) for name, value in nest.items()}
    if isinstance(nest, Pair):
        return Pair(spec_of(nest.a), spec_of(nest.b))
    return [spec_of(value) for value in nest]


def values(spec, batch: int, seed: int):
    """Arrays `[batch, ...]` whose bytes are random, except that booleans hold 0 or 1 and floats no NaN."""
    rng = np.random.default_rng(seed)

    def one(leaf):
        if leaf.dtype == np.bool_:
            return rng.integers(0, 2, (batch, *leaf.shape)).astype(np.bool_)
        if leaf.dtype.kind == "f":
            return rng.normal(scale=100, size=(batch, *leaf.shape)).astype(leaf.dtype)
        info = np.iinfo(leaf.dtype)
        return rng.integers(info.min, info.max, (batch, *leaf.shape), leaf.dtype, endpoint=True)

    return tree.map_structure(one, spec)


def assert_same(got, expected):
    tree.assert_same_structure(got, expected)
    for x, y in zip(tree.flatten(got), tree.flatten(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@settings(max_examples=100, deadline=None)
@given(nests(FIELDS).map(spec_of), st.integers(1, 5), st.integers(0, 99))
def test_unpacking_undoes_packing(spec, batch, seed):
    layout = Layout(spec)
    nest = values(spec, batch, seed)
    rows = layout.pack(tree.flatten(nest))
    assert rows.dtype == np.uint8
    assert rows.shape == (batch, layout.nbytes)
    assert_same(layout.unpack(rows), nest)
    assert_same(layout.unpack(rows[0]), tree.map_structure(lambda x: x[0], nest))


@settings(max_examples=25, deadline=None)
@given(nests(FIELDS).map(spec_of), st.integers(1, 3), st.integers(0, 99))
def test_jax_unpacks_as_numpy_does(spec, batch, seed):
    layout = Layout(spec)
    rows = layout.pack(tree.flatten(values(spec, batch, seed)))
    compiled = jax.jit(layout.unpack)(rows)
    assert all(isinstance(leaf, jax.Array) for leaf in tree.flatten(compiled))
    assert_same(compiled, layout.unpack(rows))


def test_rows_may_have_any_leading_axes():
    spec = {"image": np.zeros((4, 4, 3), np.uint8), "reward": np.zeros((), np.float32)}
    layout = Layout(spec)
    nest = values(spec, 6, 0)
    rows = layout.pack(tree.flatten(nest)).reshape(2, 3, -1)
    expected = tree.map_structure(lambda x: x.reshape(2, 3, *x.shape[1:]), nest)
    assert_same(layout.unpack(rows), expected)
    assert_same(jax.jit(layout.unpack)(jnp.asarray(rows)), expected)


@settings(max_examples=50, deadline=None)
@given(nests(FIELDS).map(spec_of))
def test_fields_are_aligned_and_lie_apart(spec):
    layout = Layout(spec)
    leaves = tree.flatten(spec)
    assert layout.dtype.fields is not None
    ends = 0
    for i, leaf in enumerate(leaves):
        dtype, offset = layout.dtype.fields[f"f{i}"][:2]
        assert offset % leaf.dtype.alignment == 0
        assert offset >= ends
        assert dtype.itemsize == leaf.nbytes
        ends = offset + leaf.nbytes
    assert layout.nbytes >= ends
    assert layout.nbytes % max(leaf.dtype.alignment for leaf in leaves) == 0


def test_padding_is_zero():
    # A byte, three of padding, a float: rows of equal fields are equal bytes, whatever memory held before.
    layout = Layout((np.zeros((), np.uint8), np.zeros((), np.float32)))
    leaves = [np.array([255], np.uint8), np.array([1.0], np.float32)]
    used = np.full(8, 170, np.uint8)
    del used  # NumPy gives its memory to the next array of that size
    np.testing.assert_array_equal(layout.pack(leaves), [[255, 0, 0, 0, 0, 0, 0x80, 0x3F]])


def test_packing_converts_to_the_stated_dtype():
    layout = Layout({"x": np.zeros((2,), np.float32)})
    rows = layout.pack([np.array([[1.5, 2.0]], np.float64)])
    np.testing.assert_array_equal(layout.unpack(rows)["x"], np.array([[1.5, 2.0]], np.float32))


def test_a_leaf_of_another_shape_is_refused():
    layout = Layout({"x": np.zeros((2,), np.float32)})
    with pytest.raises(ValueError, match="broadcast"):
        layout.pack([np.zeros((4, 3), np.float32)])
