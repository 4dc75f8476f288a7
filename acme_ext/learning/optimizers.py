"""Optimizers that several agents use."""

import optax


def adam(
    learning_rate: float | optax.Schedule, max_gradient_norm: float | None, *, epsilon: float = 1e-8
) -> optax.GradientTransformation:
    """Returns Adam, behind a bound on the gradient's global norm unless that is None."""
    return bounded(optax.adam(learning_rate, eps=epsilon), max_gradient_norm)


def bounded(optimizer: optax.GradientTransformation, max_gradient_norm: float | None) -> optax.GradientTransformation:
    """Returns an optimizer behind a bound on the gradient's global norm, or as it is if that is None."""
    if max_gradient_norm is None:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(max_gradient_norm), optimizer)


def decayed(learning_rate: float, learner_steps: int | None, *, updates: float = 1) -> float | optax.Schedule:
    """Returns a learning rate that falls linearly to 0, or stays what it is.

    Args:
        learning_rate: at the start.
        learner_steps: after which it is 0; None never lets it fall.
        updates: that the optimizer makes in a learner step.
    """
    if learner_steps is None:
        return learning_rate
    return optax.linear_schedule(learning_rate, 0.0, max(1, round(learner_steps * updates)))
