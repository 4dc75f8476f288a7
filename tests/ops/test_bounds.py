import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.ops.bounds import to_canonical, to_environment
from acme_ext.specs import Bounds


def bounds(low, high):
    return Bounds(np.array(low, np.float32), np.array(high, np.float32))


def test_the_ends_and_the_middle():
    there = to_environment(jnp.array([[-1.0], [0.0], [1.0], [0.2]]), bounds([-2], [3]))
    np.testing.assert_allclose(there, [[-2.0], [0.5], [3.0], [1.0]], rtol=1e-6)


def test_each_dimension_has_its_own_bounds():
    where = bounds([-2, 10, 0], [3, 11, 4])
    np.testing.assert_allclose(to_environment(jnp.array([[0.5, -0.5, 1.0]]), where), [[1.75, 10.25, 4.0]], rtol=1e-6)
    np.testing.assert_allclose(to_canonical(jnp.array([[1.75, 10.25, 4.0]]), where), [[0.5, -0.5, 1.0]], rtol=1e-5)


def test_what_lies_beyond_is_clipped():
    where = bounds([-2], [3])
    np.testing.assert_array_equal(to_environment(jnp.array([[-1.5], [7.0]]), where), [[-2.0], [3.0]])
    np.testing.assert_array_equal(to_canonical(jnp.array([[-9.0], [3.1]]), where), [[-1.0], [1.0]])


def test_there_and_back_and_never_outside():
    rng = np.random.default_rng(0)
    low = rng.normal(size=7).astype(np.float32) * 100
    where = Bounds(low, low + rng.uniform(0.1, 1000, 7).astype(np.float32))
    action = np.concatenate([rng.uniform(-1, 1, (500, 7)), np.ones((1, 7)), -np.ones((1, 7))]).astype(np.float32)
    there = jax.jit(lambda a: to_environment(a, where))(action)
    assert (there >= where.minimum).all()
    assert (there <= where.maximum).all()
    # What is lost is the rounding of float32 where bounds are far from zero and close together.
    tolerance = 4e-7 * np.max((np.abs(low) + where.maximum - low) / (where.maximum - low))
    np.testing.assert_allclose(to_canonical(there, where), action, atol=tolerance)


def test_the_whole_range_of_single_precision_is_no_overflow():
    top = np.finfo(np.float32).max
    where = bounds([-top], [top])
    np.testing.assert_allclose(to_environment(jnp.array([[-1.0], [1.0]]), where) / top, [[-1], [1]], rtol=1e-6)


def test_actions_of_any_shape_are_vectors_to_the_agent():
    scalar = bounds(-2.0, 3.0)
    assert to_environment(jnp.zeros((4, 1)), scalar).shape == (4,)
    assert to_canonical(jnp.zeros(4), scalar).shape == (4, 1)
    matrix = bounds(np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3) + 2)
    action = jnp.linspace(-1, 1, 12).reshape(2, 6)
    there = to_environment(action, matrix)
    assert there.shape == (2, 2, 3)
    np.testing.assert_allclose(there[0, 0, 0], 0.0, atol=1e-6)  # -1 of [0, 2]
    np.testing.assert_allclose(to_canonical(there, matrix), action, atol=2e-6)
