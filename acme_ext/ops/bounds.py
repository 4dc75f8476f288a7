"""Actions between an agent's units and the environment's.

Agents of continuous actions think in canonical units: a vector in [-1, 1] whatever the environment's bounds and shape.
The policy leaves them as its last act, and the learner comes back to them as its first, so that densities, entropies,
noise and clipping mean the same everywhere.
"""

import jax.numpy as jnp

from acme_ext.specs import Bounds
from acme_ext.types import Array


def to_environment(action: Array, bounds: Bounds) -> Array:
    """Returns actions `[B, ...]` in the environment's bounds and shape, of canonical ones `[B, A]`: -1 is the minimum
    and 1 the maximum; what lies beyond is clipped.
    """
    shaped = action.reshape(action.shape[0], *bounds.minimum.shape)
    # Rounding may step over a bound, so the result is clipped, not the canonical action.
    return jnp.clip(_middle(bounds) + _half(bounds) * shaped, bounds.minimum, bounds.maximum)


def to_canonical(action: Array, bounds: Bounds) -> Array:
    """Returns canonical actions `[B, A]`, of actions `[B, ...]` in the environment's bounds and shape: the inverse of
    `to_environment` but for rounding.
    """
    canonical = jnp.clip((action - _middle(bounds)) / _half(bounds), -1.0, 1.0)
    return canonical.reshape(action.shape[0], -1)


def _middle(bounds: Bounds) -> Array:
    return bounds.minimum / 2 + bounds.maximum / 2


def _half(bounds: Bounds) -> Array:
    return bounds.maximum / 2 - bounds.minimum / 2
