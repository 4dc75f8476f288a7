"""NGU's networks: R2D2's, told which policy it is, and the embedding of what the agent can control."""

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
    """What the action values are given at every timestep, beside the last action and reward."""

    observation: Tree  # [B, ...]
    bonus: Array  # [B] that came with the observation
    arm: Array  # [B] int32, which policy of the family acts


class NGUNetworks(NamedTuple):
    """NGU's networks."""

    values: recurrent.RecurrentNetwork  # of `Seen`
    embedding: "InverseModel"
    distillation: Any = None  # a `learning.intrinsic.Distillation`, the bonus over the agent's life

    def memory_spec(self) -> Tree:
        """Returns arrays that stand for one environment's recurrent state."""
        return self.values.memory_spec()


class InverseModel:
    """The embedding f of observations, learned by telling from f(x_t) and f(x_{t+1}) which action led from one to the
    other (Badia et al. 2020a, section 2): it has what actions change, and not what changes by itself.

    Args:
        num_actions: A.
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
        """Returns the logits `[..., A]` of the action between two embeddings `[..., D]`."""
        return self._predict.apply(params[1], jnp.concatenate([before, after], axis=-1))


def make_networks(
    spec: EnvironmentSpec,
    config: NGUConfig,
    torso: str | torsos.Torso | None = None,
    core: str | recurrent.MakeCore | None = "lstm",
) -> NGUNetworks:
    """Returns the networks. The action values are R2D2's, whose recurrent core is also given the bonus, squeezed into
    (-1, 1), and which policy it is, one-hot; a policy alone that is given no bonus is R2D2's own.

    Args:
        spec: the environment's spec.
        config: the agent's config.
        torso: see `torsos.dense_features`; of the action values and, with parameters of its own, of the embedding.
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
