"""CQL's learning: like SAC's, but with a penalty on the critics, and without the entropy in their targets."""

import jax
import jax.numpy as jnp

from acme_ext.agents.cql import losses
from acme_ext.agents.cql.config import CQLConfig
from acme_ext.agents.sac import learning as sac
from acme_ext.learning.core import LearnerCore
from acme_ext.networks.continuous import Networks
from acme_ext.types import Array, Params, Transition, Tree


def make_core(networks: Networks, config: CQLConfig, observation: Tree) -> LearnerCore[sac.State]:
    """Returns CQL's learner core; the arguments are the same as for SAC."""
    count, size = config.penalty_samples, networks.action_size

    def penalty(q_values: sac.QValues, policy: Params, batch: Transition, q_tm1: Array, key: Array) -> Array:
        """Returns the penalties `[B]`, from the values at the transitions' first observations.

        The sampled actions are uniform ones, and those of the policy at the first and at the last observations.
        """
        uniform_key, here_key, there_key = jax.random.split(key, 3)
        lead = (count, q_tm1.shape[1], size)
        actions = [jax.random.uniform(uniform_key, lead, minval=-1.0, maxval=1.0)]
        densities = [jnp.full(lead[:2], -size * jnp.log(2.0))]
        for key, seen in ((here_key, batch.observation), (there_key, batch.next_observation)):
            sampled, log_prob = networks.policy.apply(policy, None, seen).sample_with_log_prob(
                jax.random.normal(key, lead)
            )
            actions.append(sampled)
            densities.append(log_prob)
        sampled, density = jax.lax.stop_gradient((jnp.concatenate(actions), jnp.concatenate(densities)))
        q_sampled = jax.vmap(lambda action: q_values(batch.observation, action), out_axes=1)(sampled)
        return config.penalty_coef * losses.conservative_penalty(q_sampled, density, q_tm1)

    return sac.make_core(networks, config, observation, penalty=penalty, entropy_in_target=False)
