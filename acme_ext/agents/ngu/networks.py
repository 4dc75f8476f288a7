"""NGU's networks: R2D2's with the policy's index as an input, and the embedding of observations for the bonus."""

from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext import specs
from acme_ext.agents.ngu.config import NGUConfig
from acme_ext.agents.r2d2 import networks
from acme_ext.networks import layers, recurrent, torsos
from acme_ext.types import Array, EnvironmentSpec, Params, Tree


class Seen(NamedTuple):
    """The inputs of the action values at every timestep, besides the last action and reward."""

    observation: Tree  # [B, ...]
    bonus: Array  # [B] bonus that came with the observation
    arm: Array  # [B] int32, index of the acting policy in the family


class NGUNetworks(NamedTuple):
    """NGU's networks."""

    values: recurrent.RecurrentNetwork  # with inputs `Seen`
    embedding: "InverseModel"
    distillation: Any = None  # a `learning.intrinsic.Distillation`, for the bonus over the agent's lifetime


class InverseModel:
    """The embedding f of observations, trained with an inverse model (Badia et al. 2020a, section 2).

    The inverse model predicts the action from f(x_t) and f(x_{t+1}). The embedding therefore learns the features that
    actions influence, and ignores others.

    Args:
        num_actions: number of actions A.
        config: the agent's config.
        torso: see `torsos.features`.
    """

    def __init__(self, num_actions: int, config: NGUConfig, torso: str | torsos.Torso | None):
        def embed(observation: Tree) -> Array:
            x = torsos.dense_features(torso, observation, config.hidden_sizes, config.image_features)
            return layers.Linear(config.embedding_size)(x)

        def predict(both: Array) -> Array:
            return layers.Linear(num_actions)(layers.MLP((128,))(both))

        self._embed, self._predict = (hk.without_apply_rng(hk.transform(f)) for f in (embed, predict))
        self._size = config.embedding_size

    def init(self, key: Array, observation: Tree) -> Params:
        """Returns parameters for observations `[1, ...]` like this one."""
        keys = jax.random.split(key)
        return (
            self._embed.init(keys[0], observation),
            self._predict.init(keys[1], jnp.zeros((1, 2 * self._size))),
        )

    def embed(self, params: Params, observation: Tree) -> Array:
        """Returns embeddings `[B, D]` of observations `[B, ...]`."""
        return self._embed.apply(params[0], observation)

    def predict(self, params: Params, before: Array, after: Array) -> Array:
        """Returns the logits `[..., A]` of the action between observations with two embeddings `[..., D]`."""
        return self._predict.apply(params[1], jnp.concatenate([before, after], axis=-1))


def make_networks(
    spec: EnvironmentSpec,
    config: NGUConfig,
    torso: str | torsos.Torso | None = None,
    core: str | recurrent.MakeCore | None = "lstm",
) -> NGUNetworks:
    """Returns the networks.

    The network of action values is R2D2's. Its recurrent core also gets the tanh of the bonus, and the policy's index
    as a one-hot vector. If the family has only one policy, without a bonus, the core doesn't get these inputs.

    Args:
        spec: the environment's spec.
        config: the agent's config.
        torso: see `torsos.dense_features`; used for the action values and the embedding, with separate parameters.
        core: see `recurrent.make_core`.
    """

    def features(seen: Seen) -> Array:
        x = torsos.dense_features(torso, seen.observation, config.hidden_sizes, config.image_features)
        if not config.is_intrinsic:
            return x
        arm = jax.nn.one_hot(seen.arm, config.num_arms)
        return jnp.concatenate([x, jnp.tanh(seen.bonus)[:, None], arm], axis=-1)

    values = networks.network_of(spec, config, features, core)
    return NGUNetworks(values, InverseModel(specs.num_actions(spec, "NGU"), config, torso))
