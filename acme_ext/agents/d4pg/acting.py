"""How D4PG and Ape-X DPG act, and what their actors say of it."""

import jax.numpy as jnp

from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Context, Policy
from acme_ext.agents.d4pg.learning import PolicyVariables
from acme_ext.agents.d4pg.networks import Networks
from acme_ext.ops.bounds import to_environment
from acme_ext.specs import Bounds
from acme_ext.types import Array, Tree


def make_policy(networks: Networks, bounds: Bounds, noise_stddev: float, *, with_values: bool) -> Policy:
    """Returns the policy, whose actions are clip(pi(o) + noise) in the environment's bounds.

    Args:
        networks: see there.
        bounds: of the environment's action.
        noise_stddev: of normal noise on actions in [-1, 1]; 0 is deterministic.
        with_values: whether each action comes with what first priorities are made of, the critic's values `[B]` of it,
            `q_taken`, and of pi(o), `q_policy`.
    """

    def apply(params: PolicyVariables, context: Context, observation: Tree, state: Tree):
        best = networks.policy.apply(params.policy, None, observation)
        action = jnp.clip(best + noise_stddev * normal_noise(context.key, bounds.size), -1.0, 1.0)
        extras = {}
        if with_values:
            for name, each in (("q_taken", action), ("q_policy", best)):
                extras[name] = networks.value.mean(networks.critic.apply(params.critic, None, observation, each))
        return to_environment(action, bounds), state, extras or ()

    return Policy(apply)


def first_priority(reward: Array, discount: Array, extras_tm1: Tree, extras_t: Tree, *, offset: float) -> Array:
    """Returns the first priorities `[M]` of new transitions, by the critic of the actor that made them.

    p = |R_t + gamma_t * q(o_t, pi(o_t)) - q(o_tm1, a_tm1)| + offset   (Horgan et al. 2018, algorithm 1, line 9)

    Args:
        reward: `[M]` n-step rewards.
        discount: `[M]` n-step discounts, zero after a termination.
        extras_tm1: `q_taken` `[M]` and `q_policy` `[M]` where the transitions begin.
        extras_t: the same where they end.
        offset: keeps every priority above zero (Schaul et al. 2016, section 3.3).
    """
    return abs(reward + discount * extras_t["q_policy"] - extras_tm1["q_taken"]) + offset
