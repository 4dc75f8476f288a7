"""Optimizers that several agents use."""

import optax


def adam(learning_rate: float, max_gradient_norm: float | None) -> optax.GradientTransformation:
    """Returns Adam, behind a bound on the gradient's global norm unless that is None."""
    if max_gradient_norm is None:
        return optax.adam(learning_rate)
    return optax.chain(optax.clip_by_global_norm(max_gradient_norm), optax.adam(learning_rate))
