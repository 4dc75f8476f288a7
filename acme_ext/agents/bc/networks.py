"""Behavioural cloning's policy."""

from typing import NamedTuple

import haiku as hk
import jax.numpy as jnp

from acme_ext import specs
from acme_ext.agents.bc.config import BCConfig
from acme_ext.networks import layers, torsos
from acme_ext.ops import masking
from acme_ext.types import Array, EnvironmentSpec, Params, Tree


class Network(NamedTuple):
    """The policy network, and the kind of its outputs."""

    apply: hk.Transformed  # observation [B, ...] -> logits [B, A], or an action [B, A] in [-1, 1]
    discrete: bool

    def outputs(self, params: Params, observation: Tree) -> Array:
        """Returns the outputs of `apply`, with the logits of illegal actions masked."""
        out = self.apply.apply(params, None, observation)
        return masking.masked(out, masking.legal_actions(observation)) if self.discrete else out


def make_network(spec: EnvironmentSpec, config: BCConfig, torso: str | torsos.Torso | None = None) -> Network:
    """Returns the network; see `torsos.dense_features` for `torso`."""
    discrete = specs.is_discrete(spec)
    size = specs.num_actions(spec, "BC") if discrete else specs.action_size(spec, "BC")

    def policy(observation: Tree) -> Array:
        x = torsos.dense_features(torso, observation, config.hidden_sizes, config.image_features)
        out = layers.Linear(size)(x)
        return out if discrete else jnp.tanh(out)

    return Network(hk.transform(policy), discrete)
