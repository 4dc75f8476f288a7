"""Functions for arrays of NumPy and of JAX alike."""

from types import ModuleType

import numpy as np

from acme_ext.types import Array


def numpy_of(*arrays: Array) -> ModuleType:
    """Returns NumPy if all arrays are NumPy's, else jax.numpy; actors use NumPy, so they don't wait for a device."""
    if all(isinstance(array, np.ndarray) for array in arrays):
        return np
    import jax.numpy as jnp

    return jnp
