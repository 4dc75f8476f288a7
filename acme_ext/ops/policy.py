"""Policy-gradient targets and discrete policies. V-trace and GAE have the same names as in rlax; everything is batched,
with time first, `[T, B]`.

`discount_t` is gamma times the environment's discount. It is zero after a termination. It is not zero after a
truncation, where the last observation's value is used for bootstrapping.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from acme_ext.ops.value import take_action
from acme_ext.types import Array


class Categorical(NamedTuple):
    """A categorical distribution over A actions."""

    logits: Array  # [..., A]

    def mode(self) -> Array:
        """Returns the most likely action `[...]`, int32."""
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def sample(self, noise: Array) -> Array:
        """Returns sampled actions `[...]`, int32, given standard Gumbel noise `[..., A]`."""
        return jnp.argmax(self.logits + noise, axis=-1).astype(jnp.int32)

    def log_prob(self, action: Array) -> Array:
        """Returns the log-probability `[...]` of actions `[...]`."""
        return take_action(jax.nn.log_softmax(self.logits), action)

    def entropy(self) -> Array:
        """Returns the entropy `[...]`, in nats."""
        log_probs = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


def importance_ratios(log_prob: Array, behaviour_log_prob: Array) -> Array:
    """Returns the importance ratios pi(a) / mu(a), `[...]`, of the current and the behaviour policy."""
    return jnp.exp(log_prob - behaviour_log_prob)


class VTrace(NamedTuple):
    """V-trace's errors and advantages; no gradient flows through them."""

    errors: Array  # [T, B] v_s - V(x_s): target minus prediction
    pg_advantage: Array  # [T, B] rho_s * (q_s - V(x_s)), the advantage for the policy gradient


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

    After the last step, V is used for bootstrapping. Entries between two episodes, which are not steps, must have rho =
    0. Then their target is their own value, and their advantage is 0.

    Args:
        v_tm1: `[T, B]` values V(x_s) before the steps.
        v_t: `[T, B]` values after the steps.
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
        lambda_: in [0, 1]; 1 gives Monte Carlo returns up to the last value, 0 the one-step TD error.
        values: `[T + 1, B]` V(x), including the last observation.
        mask: `[T, B]` 1 for steps, 0 for others, whose delta is 0.
    """
    delta = mask * (r_t + discount_t * values[1:] - values[:-1])
    return lax.stop_gradient(discounted_sums(delta, discount_t * lambda_))


def discounted_sums(x: Array, decay: Array) -> Array:
    """Returns y `[T, B]` with y_s = x_s + decay_s * y_{s+1}, and zero after the last step, for inputs `[T, B]`."""

    def back(y: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        y = step[0] + step[1] * y
        return y, y

    return lax.scan(back, jnp.zeros_like(x[0]), (x, decay), reverse=True)[1]
