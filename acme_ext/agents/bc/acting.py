"""How a cloned policy acts."""

import jax.numpy as jnp

from acme_ext.acting.policy import Context, Policy
from acme_ext.agents.bc.config import BCConfig
from acme_ext.agents.bc.networks import Network
from acme_ext.types import Params, Tree


def make_policy(network: Network, config: BCConfig, *, evaluation: bool) -> Policy:
    """Returns the policy, which is the same in evaluation.

    It takes the most likely discrete action that is legal, or the network's continuous action.
    """
    del config, evaluation

    def apply(params: Params, context: Context, observation: Tree, state: Tree):
        out = network.outputs(params, observation)
        return (jnp.argmax(out, axis=-1).astype(jnp.int32) if network.discrete else out), state, ()

    return Policy(apply)
