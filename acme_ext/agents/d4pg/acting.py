"""How D4PG and Ape-X DPG act, and the extras that their actors store."""

import jax.numpy as jnp

from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Context, Policy
from acme_ext.acting.values import ActorValues
from acme_ext.agents.d4pg.config import DPGConfig
from acme_ext.agents.d4pg.learning import PolicyParams
from acme_ext.agents.d4pg.networks import Networks
from acme_ext.types import Array, Tree


def make_policy(networks: Networks, config: DPGConfig, *, evaluation: bool) -> Policy:
    """Returns the policy, with actions clip(pi(o) + noise); in evaluation without noise.

    With prioritized replay, its extras in training are `ActorValues`, for the initial priorities of new transitions.
    """
    with_values = config.replay.prioritized and not evaluation

    def apply(params: PolicyParams, context: Context, observation: Tree, state: Tree):
        action = best = networks.policy.apply(params.policy, None, observation)
        if not evaluation:
            noise = config.noise_stddev * normal_noise(context.key, best.shape[-1])
            action = jnp.clip(best + noise, -1.0, 1.0)

        def value(action: Array) -> Array:
            return networks.value.mean(networks.critic.apply(params.critic, None, observation, action))

        return action, state, ActorValues(value(action), value(best)) if with_values else ()

    return Policy(apply)
