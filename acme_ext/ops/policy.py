"""Policy-gradient targets and discrete policies. Names are rlax's; time comes first, `[T, B]`, and everything is
batched.

What multiplies a bootstrapped value arrives as `discount_t`, gamma times the environment's own: zero after a
termination, and not after a truncation, whose last observation's value is bootstrapped from like any other.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from acme_ext.types import Array


class Categorical(NamedTuple):
    """A choice of one of A actions."""

    logits: Array  # [..., A]

    def mode(self) -> Array:
        """Returns the likeliest action `[...]`, int32."""
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def sample(self, noise: Array) -> Array:
        """Returns actions `[...]`, int32, of standard Gumbel noise `[..., A]`."""
        return jnp.argmax(self.logits + noise, axis=-1).astype(jnp.int32)

    def log_prob(self, action: Array) -> Array:
        """Returns the log-probability `[...]` of actions `[...]`."""
        log_probs = jax.nn.log_softmax(self.logits)
        return jnp.take_along_axis(log_probs, action[..., None].astype(jnp.int32), axis=-1)[..., 0]

    def entropy(self) -> Array:
        """Returns the entropy `[...]`, in nats."""
        log_probs = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


def importance_ratios(log_prob: Array, behaviour_log_prob: Array) -> Array:
    """Returns how much likelier actions are now than when they were taken, pi(a) / mu(a), `[...]`."""
    return jnp.exp(log_prob - behaviour_log_prob)


class VTrace(NamedTuple):
    """V-trace's targets, through which no gradient flows."""

    errors: Array  # [T, B] v_s - V(x_s): target less prediction
    pg_advantage: Array  # [T, B] rho_s * (q_s - V(x_s)), the policy gradient's


def vtrace_td_error_and_advantage(
    v_tm1: Array,
    v_t: Array,
    r_t: Array,
    discount_t: Array,
    rho_tm1: Array,
    *,
    clip_rho_threshold: float = 1.0,
    clip_c_threshold: float = 1.0,
) -> VTrace:
    """Returns V-trace's value errors and policy-gradient advantages (Espeholt et al. 2018, eq. 1 and section 4.2).

    v_s     = V(x_s) + delta_s + gamma_s * c_s * (v_{s+1} - V(x_{s+1}))
    delta_s = min(rho_bar, rho_s) * (r_s + gamma_s * V(x_{s+1}) - V(x_s)),   c_s = min(c_bar, rho_s)
    q_s     = r_s + gamma_s * v_{s+1},   advantage_s = min(rho_bar, rho_s) * (q_s - V(x_s))

    What follows the last step is bootstrapped from by V alone. A step that is none, between two episodes, has a rho of
    0: its target is then its own value, and its advantage 0.

    Args:
        v_tm1: `[T, B]` values V(x_s) where the steps begin.
        v_t: `[T, B]` where they end.
        r_t: `[T, B]` rewards.
        discount_t: `[T, B]` discounts.
        rho_tm1: `[T, B]` importance ratios pi / mu of the actions taken.
        clip_rho_threshold: rho_bar.
        clip_c_threshold: c_bar.
    """
    rho = jnp.minimum(clip_rho_threshold, rho_tm1)
    c = jnp.minimum(clip_c_threshold, rho_tm1)
    errors = discounted_sums(rho * (r_t + discount_t * v_t - v_tm1), discount_t * c)
    target_t = jnp.concatenate([(errors + v_tm1)[1:], v_t[-1:]])
    return VTrace(*lax.stop_gradient((errors, rho * (r_t + discount_t * target_t - v_tm1))))


def truncated_generalized_advantage_estimation(
    r_t: Array, discount_t: Array, lambda_: float, values: Array, mask: Array
) -> Array:
    """Returns generalized advantage estimates `[T, B]`, through which no gradient flows (Schulman et al. 2016, eq. 16).

    A_s = delta_s + gamma_s * lambda * A_{s+1},   delta_s = r_s + gamma_s * V(x_{s+1}) - V(x_s);   A_T = 0

    Args:
        r_t: `[T, B]` rewards.
        discount_t: `[T, B]` discounts.
        lambda_: in [0, 1]; 1 sums rewards up to the last value, 0 is the one-step error.
        values: `[T + 1, B]` V(x), of the last observation too.
        mask: `[T, B]` 0 for what is no step: its advantage is 0.
    """
    delta = mask * (r_t + discount_t * values[1:] - values[:-1])
    return lax.stop_gradient(discounted_sums(delta, discount_t * lambda_))


def discounted_sums(x: Array, decay: Array) -> Array:
    """Returns y with y_s = x_s + decay_s * y_{s+1} and zero after the last, `[T, B]` of `[T, B]` each."""

    def back(y: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        y = step[0] + step[1] * y
        return y, y

    return lax.scan(back, jnp.zeros_like(x[0]), (x, decay), reverse=True)[1]
