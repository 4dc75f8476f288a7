import itertools
import re
import subprocess
import sys

import haiku as hk
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.networks.convolution import Conv2D, as_product, convolve
from acme_ext.utils import compiling

RNG = np.random.default_rng(0)
# Every kernel, stride and padding; the other combinations are for before a release.
_FEW = [
    (convolve, 10, 2, 3, "VALID"),
    (convolve, 10, 3, 1, "SAME"),
    (convolve, 10, 4, 2, "SAME"),
    (as_product, 10, 1, 2, "SAME"),
    (as_product, 10, 4, 3, "VALID"),
]


@pytest.mark.parametrize(
    ("made_by", "size", "kernel", "stride", "padding"),
    [
        pytest.param(*each, marks=() if each in _FEW else pytest.mark.release)
        for each in itertools.product([convolve, as_product], [9, 10], [1, 2, 3, 4], [1, 2, 3], ["SAME", "VALID"])
    ],
)
def test_results_and_gradients_are_jaxs(size, kernel, stride, padding, made_by):
    def ours(x, w):
        return jnp.sum(jnp.sin(made_by(x, w, stride, padding)))

    def jaxs(x, w):
        layout = ("NHWC", "HWIO", "NHWC")
        return jnp.sum(jnp.sin(jax.lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=layout)))

    x = RNG.normal(size=(3, size, size + 1, 2)).astype(np.float32)
    w = RNG.normal(size=(kernel, kernel, 2, 5)).astype(np.float32)
    (value, gradients), (expected, wanted) = (jax.jit(jax.value_and_grad(f, (0, 1)))(x, w) for f in (ours, jaxs))
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)
    for gradient, right in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(gradient, right, atol=1e-4)


def test_the_layer_is_haikus():
    x = RNG.normal(size=(2, 7, 6, 3)).astype(np.float32)
    ours, haikus = (
        hk.without_apply_rng(hk.transform(lambda x, make=make: make(4, 3, 2, padding="VALID")(x)))
        for make in (Conv2D, hk.Conv2D)
    )
    params, theirs = (each.init(jax.random.key(0), x) for each in (ours, haikus))
    jax.tree.map(np.testing.assert_array_equal, params, theirs)
    np.testing.assert_allclose(ours.apply(params, x), haikus.apply(theirs, x), rtol=1e-5)


def test_in_a_loop_all_convolutions_have_the_fast_order():
    """XLA for the CPU runs others there in plain loops."""

    def loss(ws, x):
        for w, stride in zip(ws, (2, 1), strict=True):
            x = jax.nn.relu(convolve(x, w, stride))
        return jnp.mean(x**2)

    def learned(ws, xs):
        def step(ws, x):
            return jax.tree.map(lambda w, g: w - g, ws, jax.grad(loss)(ws, x)), None

        return jax.lax.scan(step, ws, xs)[0]

    shapes = (3, 3, 2, 4), (3, 3, 4, 4)
    ws = [RNG.normal(size=shape).astype(np.float32) for shape in shapes]
    for threaded in (False, True):
        lowered = compiling.jit(learned, threaded=threaded).lower(ws, np.ones((3, 5, 8, 8, 2), np.float32))
        text = lowered.compile().as_text()
        orders = re.findall(r"= \S+ convolution\(.*dim_labels=([^,\s]*)", text)
        assert len(orders) >= 5  # two forward, two of the weights, one of the first layer's results
        assert set(orders) == {"b01f_01io->b01f"}


def test_its_gradient_is_traced_without_a_device():
    """A program's processes are forked after its agent was traced, and a device's threads would be missing in them."""
    code = """
import jax
import jax.export
from jax._src import xla_bridge
from acme_ext.networks.convolution import convolve
shapes = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((2, 9, 9, 3), (3, 3, 3, 4))]
jax.eval_shape(jax.grad(lambda x, w: convolve(x, w).sum()), *shapes)
assert not xla_bridge.backends_are_initialized()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("size", "multiplied"), [(10, True), (84, False)])
def test_products_are_compiled_for_small_images_only(size, multiplied):
    def gradient(x, w):
        return jax.grad(lambda w: jnp.sum(convolve(x, w)))(w)

    shapes = jax.ShapeDtypeStruct((2, size, size, 3), jnp.float32), jax.ShapeDtypeStruct((3, 3, 3, 4), jnp.float32)
    program = jax.export.export(jax.jit(gradient), platforms=["cuda"])(*shapes).mlir_module()
    assert ("stablehlo.dot_general" in program) == multiplied  # in the branch for GPUs; the others convolve
