"""Optimizers that several agents use."""

import optax


def adam(
    learning_rate: float, max_gradient_norm: float | None, *, epsilon: float = 1e-8
) -> optax.GradientTransformation:
    """Returns Adam, behind a bound on the gradient's global norm unless that is None."""
    optimizer = optax.adam(learning_rate, eps=epsilon)
    if max_gradient_norm is None:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(max_gradient_norm), optimizer)
