import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.learning import normalize

RNG = np.random.default_rng(0)


def test_before_anything_was_seen_values_pass_unchanged():
    moments = normalize.init({"a": jnp.zeros(3)})
    x = {"a": RNG.normal(size=(2, 3)).astype(np.float32)}
    np.testing.assert_allclose(normalize.normalize(moments, x)["a"], x["a"], rtol=1e-6)
    np.testing.assert_allclose(normalize.denormalize(moments, x)["a"], x["a"], rtol=1e-6)


def test_batches_add_up_to_the_moments_of_all():
    batches = [3.0 + RNG.normal(size=(4, n, 2)) * [1.0, 50.0] for n in (1, 5, 30)]
    moments = normalize.init(jnp.zeros(2))
    for batch in batches:
        moments = normalize.update(moments, jnp.asarray(batch, jnp.float32), jnp.ones(batch.shape[:2]))
    seen = np.concatenate([batch.reshape(-1, 2) for batch in batches])
    assert moments.count == len(seen)
    np.testing.assert_allclose(moments.mean, seen.mean(0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, seen.var(0), rtol=1e-5)


def test_what_the_mask_leaves_out_changes_nothing():
    values = jnp.asarray([[1.0, 2.0], [1e6, -1e6], [3.0, 6.0]])
    moments = normalize.update(normalize.init(jnp.zeros(2)), values, jnp.asarray([1.0, 0.0, 1.0]))
    np.testing.assert_allclose(moments.mean, [2, 4])
    np.testing.assert_allclose(moments.variance, [1, 4])
    same = normalize.update(moments, values, jnp.zeros(3))
    jax.tree.map(np.testing.assert_array_equal, same, moments)
    fresh = normalize.init(jnp.zeros(2))
    jax.tree.map(np.testing.assert_array_equal, normalize.update(fresh, values, jnp.zeros(3)), fresh)


def test_old_values_are_forgotten_beyond_the_horizon():
    moments = normalize.init(jnp.zeros(()))
    for _ in range(100):
        moments = normalize.update(moments, jnp.full(10, 5.0), jnp.ones(10), horizon=50)
    assert moments.count == 50
    for _ in range(30):
        moments = normalize.update(moments, jnp.full(10, -1.0), jnp.ones(10), horizon=50)
    # Each batch of 10 takes a share of 10 / 60.
    np.testing.assert_allclose(moments.mean, -1 + 6 * (5 / 6) ** 30, rtol=1e-4)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_normal_values_have_mean_0_and_variance_1(offset):
    x = jnp.asarray(offset + 3 * RNG.normal(size=(500, 1)), jnp.float32)
    moments = normalize.update(normalize.init(jnp.zeros(1)), x, jnp.ones(500))
    normal = normalize.normalize(moments, x)
    np.testing.assert_allclose([np.mean(normal), np.std(normal)], [0, 1], atol=2e-3)
    np.testing.assert_allclose(normalize.denormalize(moments, normal), x, rtol=1e-5, atol=1e-2)


def test_outliers_are_clipped():
    moments = normalize.update(normalize.init(jnp.zeros(())), jnp.asarray([-1.0, 1.0]), jnp.ones(2))
    np.testing.assert_allclose(normalize.normalize(moments, jnp.asarray([-99.0, 0.5, 99.0]), 3.0), [-3, 0.5, 3])


def test_what_never_changes_is_no_division_by_zero():
    moments = normalize.update(normalize.init(jnp.zeros(())), jnp.full(7, 2.0), jnp.ones(7))
    assert normalize.normalize(moments, jnp.asarray([2.0]))[0] == 0
    assert np.isfinite(normalize.normalize(moments, jnp.asarray([2.5]), 10.0)).all()


def test_only_vectors_of_floating_point_numbers_are_normalised():
    pixels = np.full((2, 3), 7, np.uint8)
    observation = {"a": np.array([1.0, 3.0], np.float32), "pixels": pixels, "z": np.array([[5.0], [5.0]], np.float32)}
    observation["grid"] = np.ones((2, 4, 4, 3), np.float32)
    fields = normalize.fields_of(observation, observation)
    assert [field.shape for field in fields] == [(2,), (2, 1)]
    moments = normalize.init([field[0] for field in fields])
    moments = normalize.update(moments, [jnp.asarray(field) for field in fields], jnp.ones(2))
    normal = normalize.normalize_fields(moments, observation, observation, 0.5)
    np.testing.assert_allclose(normal["a"], [-0.5, 0.5])
    np.testing.assert_allclose(normal["z"], [[0], [0]])
    assert normal["pixels"] is pixels
    assert normal["grid"] is observation["grid"]
