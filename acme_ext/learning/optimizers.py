"""Optimizers that several agents use."""

import optax


def adam(
    learning_rate: float | optax.Schedule, max_gradient_norm: float | None, *, epsilon: float = 1e-8
) -> optax.GradientTransformation:
    """Returns Adam; if `max_gradient_norm` is given, gradients are first clipped to this global norm."""
    return bounded(optax.adam(learning_rate, eps=epsilon), max_gradient_norm)


def rmsprop(learning_rate: float | optax.Schedule, decay: float, epsilon: float) -> optax.GradientTransformation:
    """Returns RMSProp whose average starts at 0 and is corrected for this, as in Adam.

    Without the correction, the first updates are about 1 / sqrt(1 - decay) times as large as later ones.
    """
    return optax.rmsprop(learning_rate, decay, epsilon, bias_correction=True)


def bounded(optimizer: optax.GradientTransformation, max_gradient_norm: float | None) -> optax.GradientTransformation:
    """Returns the optimizer with gradients first clipped to a global norm; unchanged if the norm is None."""
    if max_gradient_norm is None:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(max_gradient_norm), optimizer)


def decayed(learning_rate: float, learner_steps: int | None, *, updates: float = 1) -> float | optax.Schedule:
    """Returns a learning rate that decays linearly to 0, or a constant one.

    Args:
        learning_rate: the initial learning rate.
        learner_steps: learner steps after which it is 0; None for a constant learning rate.
        updates: optimizer updates in one learner step.
    """
    if learner_steps is None:
        return learning_rate
    return optax.linear_schedule(learning_rate, 0.0, max(1, round(learner_steps * updates)))
