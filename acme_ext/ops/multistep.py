"""Multi-step returns, and the value rescaling of Pohlen et al. 2018, batched. Arguments are named as in rlax."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from acme_ext.ops.policy import discounted_sums
from acme_ext.types import Array
from acme_ext.utils.arrays import numpy_of


def signed_hyperbolic(x: Array, epsilon: float) -> Array:
    """Returns h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x, which compresses large values (Pohlen et al. 2018,
    section 3.2).
    """
    xp = numpy_of(x)
    size = xp.abs(x)
    # sqrt(|x| + 1) - 1 is written as a quotient, which keeps its precision for small x.
    return x / (xp.sqrt(size + 1.0) + 1.0) + epsilon * x


def signed_parabolic(x: Array, epsilon: float) -> Array:
    """Returns the inverse of `signed_hyperbolic` (Pohlen et al. 2018, proposition A.2)."""
    xp = numpy_of(x)
    size, middle = xp.abs(x), 1.0 + 2.0 * epsilon
    # sign(x) (z**2 - 1) with z = (sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon), expressed with z - 1 in a
    # form that avoids the subtraction of nearly equal numbers.
    root = xp.sqrt(middle * middle + 4.0 * epsilon * size)
    z_less_one = 2.0 * size * (1.0 - 2.0 * epsilon / (root + middle)) / (root + 1.0)
    return xp.sign(x) * z_less_one * (z_less_one + 2.0)


def continues_of(mask: Array) -> Array:
    """Returns whether another step follows each step of a sequence, bool `[T, ...]`, for a mask `[T, ...]` of steps."""
    xp = numpy_of(mask)
    return xp.concatenate([mask[1:] > 0, xp.zeros_like(mask[:1], bool)])


def n_step_returns(r_t: Array, discount_t: Array, v_t: Array, continues: Array, n: int | None) -> Array:
    """Returns the n-step returns `[T, ...]` from each step of a sequence, over fewer steps where the sequence ends.

    G_t = r_{t+1} + gamma_{t+1} (r_{t+2} + gamma_{t+2} (... + gamma_{t+m} v_{t+m})), m <= n.

    Args:
        r_t: `[T, ...]` rewards of the steps; all arrays may be JAX's or NumPy's.
        discount_t: `[T, ...]` discounts of the steps, zero after a termination.
        v_t: `[T, ...]` values after the steps.
        continues: `[T, ...]` whether a return goes on with the next step, see `continues_of`; false at the last step.
        n: number of steps; None for all that follow, in one pass from the last step to the first.
    """
    xp = numpy_of(r_t, discount_t, v_t, continues)
    if n is not None and n < len(r_t):
        returns = r_t + discount_t * v_t
        for _ in range(n - 1):
            following = xp.concatenate([returns[1:], v_t[-1:]])
            returns = r_t + discount_t * xp.where(continues, following, v_t)
        return returns

    def back(following: Array, step: tuple[Array, ...]) -> tuple[Array, Array]:
        r_t, discount_t, v_t, continues = step
        returns = r_t + discount_t * xp.where(continues, following, v_t)
        return returns, returns

    steps = (r_t, discount_t, v_t, continues)
    if xp is jnp:
        return lax.scan(back, jnp.zeros_like(v_t[-1]), steps, reverse=True)[1]
    returns = [v_t[-1]]
    for step in zip(*(x[::-1] for x in steps), strict=True):
        returns.append(back(returns[-1], step)[0])
    return np.stack(returns[:0:-1])


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
    """Returns Retrace targets `[T, B]` (Munos et al. 2016, eq. 4) for values rescaled by h (Badia et al. 2020a,
    appendix E, 'transformed Retrace').

    y_s = h(G_s),  G_s = r_s + gamma_s (sum_a pi(a) Q_{s+1}(a) - c_{s+1} Q_{s+1}(a_{s+1}) + c_{s+1} G_{s+1}),

    where Q is h^-1 of the target network's values. After the last step of a trace, c is 0.

    Args:
        q_t: `[T, B, A]` the target network's values after the steps, rescaled by h.
        q_a_t: `[T, B]` its values of the actions taken there; ignored where there is no action.
        c_t: `[T, B]` the trace coefficients of those actions, see `retrace_factors`.
        pi_t: `[T, B, A]` the target policy's probabilities after the steps.
        r_t: `[T, B]` rewards.
        discount_t: `[T, B]` discounts, zero after a termination.
        continues: `[T, B]` whether there is a next step in the same episode.
        rescaling_epsilon: epsilon of h; None for values that are not rescaled.
    """
    if rescaling_epsilon is not None:
        q_t, q_a_t = (signed_parabolic(q, rescaling_epsilon) for q in (q_t, q_a_t))
    c_t = jnp.where(continues, c_t, 0.0)
    # The bootstrapped value, without the part that the trace replaces by the next step's return.
    base = r_t + discount_t * (jnp.sum(pi_t * q_t, axis=-1) - c_t * q_a_t)
    returns = discounted_sums(base, discount_t * c_t)
    return returns if rescaling_epsilon is None else signed_hyperbolic(returns, rescaling_epsilon)


def retrace_factors(pi_a: Array, mu: Array, lambda_: float) -> Array:
    """Returns Retrace's trace coefficients c = lambda min(1, pi(a) / mu(a)) `[...]` (Munos et al. 2016, section 3).

    Args:
        pi_a: `[...]` the target policy's probability of the action.
        mu: `[...]` the behaviour policy's probability of the action.
        lambda_: in [0, 1].
    """
    return lambda_ * jnp.minimum(1.0, pi_a / jnp.maximum(mu, 1e-8))
