"""Returns of several steps and the squeezed scale of Pohlen et al. 2018, batched. Names are rlax's."""

import jax.numpy as jnp
from jax import lax

from acme_ext.ops.value import numpy_of
from acme_ext.types import Array


def signed_hyperbolic(x: Array, epsilon: float) -> Array:
    """Returns h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x, which squeezes large values (Pohlen et al. 2018, section
    3.2).
    """
    xp = numpy_of(x)
    size = xp.abs(x)
    # The root's difference to 1 as a quotient: it loses no digits where x is small.
    return x / (xp.sqrt(size + 1.0) + 1.0) + epsilon * x


def signed_parabolic(x: Array, epsilon: float) -> Array:
    """Returns the inverse of `signed_hyperbolic` (Pohlen et al. 2018, proposition A.2)."""
    xp = numpy_of(x)
    size, middle = xp.abs(x), 1.0 + 2.0 * epsilon
    # sign(x) (z**2 - 1) with z = (sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon), written by z - 1 in a
    # form that subtracts nothing from what is nearly as large.
    root = xp.sqrt(middle * middle + 4.0 * epsilon * size)
    z_less_one = 2.0 * size * (1.0 - 2.0 * epsilon / (root + middle)) / (root + 1.0)
    return xp.sign(x) * z_less_one * (z_less_one + 2.0)


def n_step_returns(r_t: Array, discount_t: Array, v_t: Array, mask: Array, n: int) -> Array:
    """Returns the returns `[T, ...]` of n steps from each step of a sequence on, or of fewer where its steps end.

    G_t = r_{t+1} + gamma_{t+1} (r_{t+2} + gamma_{t+2} (... + gamma_{t+m} v_{t+m})), m <= n.

    Args:
        r_t: `[T, ...]` rewards of the steps; JAX or NumPy, as the others.
        discount_t: `[T, ...]` their discounts, zero after a termination.
        v_t: `[T, ...]` values at the steps' ends.
        mask: `[T, ...]` 1 where there is a step.
        n: steps.
    """
    xp = numpy_of(r_t, discount_t, v_t, mask)
    returns = r_t + discount_t * v_t
    for _ in range(n - 1):
        following = xp.concatenate([xp.where(mask[1:] > 0, returns[1:], v_t[:-1]), v_t[-1:]])
        returns = r_t + discount_t * following
    return returns


def retrace_targets(
    q_t: Array,
    q_a_t: Array,
    c_t: Array,
    pi_t: Array,
    r_t: Array,
    discount_t: Array,
    continues: Array,
    rescaling_epsilon: float | None,
) -> Array:
    """Returns Retrace's targets `[T, B]` (Munos et al. 2016, eq. 4) of values in h's scale (Badia et al. 2020a,
    appendix E, 'transformed Retrace').

    y_s = h(G_s),  G_s = r_s + gamma_s (sum_a pi(a) Q_{s+1}(a) - c_{s+1} Q_{s+1}(a_{s+1}) + c_{s+1} G_{s+1}),

    where Q = h^-1 of the target network's values. After the last step of a trace c is 0.

    Args:
        q_t: `[T, B, A]` target network's values where the steps end, in h's scale.
        q_a_t: `[T, B]` its values of the actions taken there; anything where none was.
        c_t: `[T, B]` the trace's factors of those actions, see `retrace_factors`.
        pi_t: `[T, B, A]` the target policy where the steps end.
        r_t: `[T, B]` rewards.
        discount_t: `[T, B]` discounts, zero after a termination.
        continues: `[T, B]` whether the step after is of the same episode and is there.
        rescaling_epsilon: of h; None for values as they are.
    """
    if rescaling_epsilon is not None:
        q_t, q_a_t = (signed_parabolic(q, rescaling_epsilon) for q in (q_t, q_a_t))
    c_t = jnp.where(continues, c_t, 0.0)
    # What is bootstrapped from, but for the part of it that the trace's next step says better.
    base = r_t + discount_t * (jnp.sum(pi_t * q_t, axis=-1) - c_t * q_a_t)

    def back(following: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        base, factor = step
        returns = base + factor * following
        return returns, returns

    returns = lax.scan(back, jnp.zeros_like(base[0]), (base, discount_t * c_t), reverse=True)[1]
    return returns if rescaling_epsilon is None else signed_hyperbolic(returns, rescaling_epsilon)


def retrace_factors(pi_a: Array, mu: Array, lambda_: float) -> Array:
    """Returns c = lambda min(1, pi(a) / mu(a)) `[...]`, how much of a trace goes on through an action (Munos et al.
    2016, section 3).

    Args:
        pi_a: `[...]` the target policy's probability of the action.
        mu: `[...]` that with which it was taken.
        lambda_: in [0, 1].
    """
    return lambda_ * jnp.minimum(1.0, pi_a / jnp.maximum(mu, 1e-8))
