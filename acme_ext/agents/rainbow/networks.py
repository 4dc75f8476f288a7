"""Rainbow's network."""

import functools
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext import specs
from acme_ext.agents.rainbow.config import RainbowConfig
from acme_ext.networks import heads, layers, noisy, torsos
from acme_ext.ops import distributional
from acme_ext.types import Array, EnvironmentSpec, Tree


class Prediction(NamedTuple):
    """The network's outputs for every action."""

    q: Array  # [B, A] the mean returns
    values: Array  # [B, A, N] logits of the atoms, quantiles, or the mean returns (N = 1)
    taus: Array  # [B, N] the fractions of the quantiles in `values`; only valid if these are quantiles


def support(config: RainbowConfig) -> Array:
    """Returns the atoms `[N]` of the categorical distribution."""
    return np.linspace(config.v_min, config.v_max, config.num_atoms, dtype=np.float32)


def make_network(
    spec: EnvironmentSpec, config: RainbowConfig, torso: str | torsos.Torso | None = None
) -> hk.Transformed:
    """Returns the network `apply(params, key, observation [B, ...]) -> Prediction`.

    The key generates the noise, which is the same for the whole batch, and the random fractions of implicit quantiles.
    Without a key there is no noise, and the fractions are midpoints.

    Args:
        spec: the environment's spec.
        config: the agent's config.
        torso: see `torsos.features`; the head has a hidden layer of its own.
    """
    num_actions = specs.num_actions(spec, "Rainbow")
    linears = functools.partial(noisy.noisy_linears, sigma=config.noisy_sigma) if config.noisy else layers.linears
    outputs = {"categorical": config.num_atoms, "quantile": config.num_quantiles}.get(config.distribution, 1)

    def predict(observation: Tree) -> Prediction:
        features = torsos.features(torso, observation, config.hidden_sizes[:-1])
        hidden = config.image_features if torsos.is_image(observation) else config.hidden_sizes[-1]
        head = heads.ActionHead(num_actions, outputs, hidden, dueling=config.dueling, linears=linears)
        shape = (features.shape[0], config.num_quantiles)
        taus = jnp.broadcast_to(distributional.quantile_midpoints(config.num_quantiles), shape)
        if config.distribution == "implicit":
            if (key := hk.maybe_next_rng_key()) is not None:
                taus = jax.random.uniform(key, shape)
            embedding = heads.CosineEmbedding(features.shape[-1])(taus)
            values = jnp.moveaxis(head(features[:, None] * embedding)[..., 0], 1, 2)
        else:
            values = head(features)
        if config.distribution == "categorical":
            return Prediction(distributional.categorical_mean(values, support(config)), values, taus)
        return Prediction(jnp.mean(values, axis=-1), values, taus)

    return hk.transform(predict)


def q_network(network: hk.Transformed) -> hk.Transformed:
    """Returns a network that only outputs the action values `[B, A]` of this one."""
    return network._replace(apply=lambda params, key, observation: network.apply(params, key, observation).q)
