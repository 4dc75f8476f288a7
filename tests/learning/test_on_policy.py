"""What agents share that learn from unrolls of their own policy."""

import jax.numpy as jnp
import numpy as np

from acme_ext.learning.on_policy import normalized_advantages


def test_advantages_are_normalised_among_those_that_count():
    mask = jnp.array([1.0, 0.0, 1.0, 1.0])
    found = normalized_advantages(jnp.array([1.0, 1e6, 4.0, 7.0]), mask)
    np.testing.assert_allclose(found, np.array([-3, 0, 0, 3]) / np.sqrt(6), rtol=1e-5)
    # Alone, or all alike, they say nothing.
    np.testing.assert_allclose(normalized_advantages(jnp.full(4, 3.0), mask), np.zeros(4))
    assert np.isfinite(normalized_advantages(jnp.ones(4), jnp.zeros(4))).all()
