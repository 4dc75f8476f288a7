"""How IMPALA acts."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.acting import stochastic
from acme_ext.acting.policy import Context, Policy
from acme_ext.agents.impala.config import IMPALAConfig
from acme_ext.agents.impala.losses import clip_rewards
from acme_ext.agents.impala.networks import Inputs, Network
from acme_ext.types import Array, Params, Tree


class Memory(NamedTuple):
    """The state of a policy with an LSTM."""

    network: Tree  # [B, ...]
    last_action: Array  # [B] int32; -1 at an episode's first


def init_memory(network: Network, config: IMPALAConfig, batch: int) -> Memory | tuple[()]:
    """Returns the policy's state at the start of an episode: nothing, if the network remembers nothing."""
    if config.lstm_size is None:
        return ()
    return Memory(network.init_state(batch), jnp.full(batch, -1, jnp.int32))


def make_policy(network: Network, config: IMPALAConfig, *, greedy: bool) -> Policy:
    """Returns the policy of a network, see `networks.make_network`; the rest as for `stochastic.make_policy`."""

    def decide(params: Params, context: Context, observation: Tree, state: Memory | tuple[()]):
        batch = context.reward.shape[0]
        state = state or Memory((), jnp.full(batch, -1, jnp.int32))
        # The actor has reset the state where an episode begins, so nothing is left to reset here.
        reward = clip_rewards(context.reward, config.reward_clipping)
        inputs = Inputs(observation, state.last_action, reward, jnp.zeros(batch, jnp.bool_))
        output, after = network.apply(params, jax.tree.map(lambda x: x[None], inputs), state.network)
        return jax.tree.map(lambda x: x[0], output.policy), state._replace(network=after)

    return stochastic.make_policy(
        decide,
        init_state=lambda batch: init_memory(network, config, batch),
        remember=lambda state, action: () if config.lstm_size is None else state._replace(last_action=action),
        greedy=greedy,
    )
