"""How D4PG and Ape-X DPG act."""

import jax.numpy as jnp

from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Context, Policy
from acme_ext.agents.d4pg.learning import PolicyVariables
from acme_ext.agents.d4pg.networks import Networks
from acme_ext.ops import bounds
from acme_ext.ops.critics import ValueModel
from acme_ext.specs import Bounds
from acme_ext.types import Tree


def make_policy(
    networks: Networks, value: ValueModel, action_bounds: Bounds, noise_stddev: float, *, with_values: bool
) -> Policy:
    """Returns the policy, whose actions are a = clip(pi(o) + noise) in the environment's bounds.

    Args:
        networks: see there.
        value: reads the critic.
        action_bounds: of the environment.
        noise_stddev: of normal noise on actions in [-1, 1]; 0 is deterministic.
        with_values: whether each action comes with the critic's values `q` of it and `value` of pi(o), from which first
            priorities are computed.
    """

    def apply(params: PolicyVariables, context: Context, observation: Tree, state: Tree):
        best = networks.policy.apply(params.policy, None, observation)
        noise = noise_stddev * normal_noise(context.key, action_bounds.size)
        action = jnp.clip(best + noise, -1.0, 1.0)
        extras = ()
        if with_values:
            q, of_best = (
                value.mean(networks.critic.apply(params.critic, None, observation, a)) for a in (action, best)
            )
            extras = {"q": q, "value": of_best}
        return bounds.to_environment(action, action_bounds), state, extras

    return Policy(apply)
