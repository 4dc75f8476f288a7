"""Rainbow's losses for categorical and quantile distributions; expected values use DQN's loss."""

import jax
import jax.numpy as jnp
from jax import lax

from acme_ext.ops import distributional
from acme_ext.types import Array


def categorical_double_q_target(
    r_t: Array, discount_t: Array, logits_t: Array, q_t_selector: Array, atoms: Array
) -> Array:
    """Returns the probabilities `[B, N]` of the projected target (Hessel et al. 2018, 'Multi-step learning', with
    double Q).

    No gradient flows through it.

    Phi_z(R_t + gamma_t z, softmax(logits_t[argmax_a q_t_selector[a]]))

    Args:
        r_t: `[B]` n-step rewards.
        discount_t: `[B]` n-step discounts, zero after a termination.
        logits_t: `[B, A, N]` target network's logits at the last observation.
        q_t_selector: `[B, A]` action values at the last observation that select the action: from the online network for
            double Q-learning, otherwise from the target network.
        atoms: `[N]` the support z.
    """
    probs_t = jax.nn.softmax(of_action(logits_t, jnp.argmax(q_t_selector, axis=-1)))
    return lax.stop_gradient(distributional.categorical_target(r_t, discount_t, probs_t, atoms))


def categorical_q_loss(logits_tm1: Array, a_tm1: Array, target: Array) -> Array:
    """Returns each transition's loss `[B]`, which is also its priority (Hessel et al. 2018, 'The integrated agent').

    KL(target || softmax(logits_tm1[a_tm1]))

    Args:
        logits_tm1: `[B, A, N]` online logits at the first observation.
        a_tm1: `[B]` actions taken there.
        target: `[B, N]` probabilities of the target.
    """
    return distributional.categorical_kl(target, of_action(logits_tm1, a_tm1))


def quantile_double_q_target(r_t: Array, discount_t: Array, quantiles_t: Array, q_t_selector: Array) -> Array:
    """Returns the quantiles `[B, M]` of the target (Dabney et al. 2018a, algorithm 1, with double Q).

    No gradient flows through it.

    Args:
        r_t: `[B]` n-step rewards.
        discount_t: `[B]` n-step discounts, zero after a termination.
        quantiles_t: `[B, A, M]` target network's quantiles at the last observation.
        q_t_selector: `[B, A]` action values that select the action, as for `categorical_double_q_target`.
    """
    quantiles_t = of_action(quantiles_t, jnp.argmax(q_t_selector, axis=-1))
    return lax.stop_gradient(r_t[:, None] + discount_t[:, None] * quantiles_t)


def quantile_q_loss(quantiles_tm1: Array, taus_tm1: Array, a_tm1: Array, target: Array, kappa: float) -> Array:
    """Returns each transition's quantile regression loss `[B]` (Dabney et al. 2018a, eq. 10).

    Args:
        quantiles_tm1: `[B, A, N]` online quantiles at the first observation.
        taus_tm1: `[B, N]` their fractions.
        a_tm1: `[B]` actions taken there.
        target: `[B, M]` quantiles of the target.
        kappa: where the Huber loss becomes linear.
    """
    return distributional.quantile_loss(of_action(quantiles_tm1, a_tm1), taus_tm1, target, kappa)


def of_action(values: Array, a: Array) -> Array:
    """Returns values[b, a[b]], `[B, N]`, for values `[B, A, N]` and actions `[B]`."""
    return jnp.take_along_axis(values, a[:, None, None].astype(jnp.int32), axis=1)[:, 0]
