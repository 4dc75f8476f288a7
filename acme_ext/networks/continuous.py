"""Networks for continuous actions, which are vectors `[B, A]` in [-1, 1].

Each network starts with a torso, see `torsos.features`. By default, images and grids go through convolutions, and other
observations are flattened into one vector, with a dictionary's fields in alphabetical order.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.networks import layers, torsos
from acme_ext.ops.gaussian import Gaussian, SquashedGaussian
from acme_ext.types import Array, Params, Tree


class MLP(hk.Module):
    """Affine layers, each followed by a nonlinearity, `[B, F] -> [B, sizes[-1]]`.

    The nonlinearity is ReLU, as in Lillicrap et al. 2016. With `layer_norm`, it is layer normalisation and tanh after
    the first layer, and ELU after the others (Abdolmaleki et al. 2018a, appendix D, and DeepMind's later agents); this
    compensates for observations of different scales.
    """

    def __init__(self, sizes: Sequence[int], *, layer_norm: bool = False, name: str | None = None):
        super().__init__(name)
        self._sizes, self._layer_norm = sizes, layer_norm

    def __call__(self, x: Array) -> Array:
        if not self._layer_norm:
            return layers.MLP(self._sizes)(x)
        first, *others = self._sizes
        x = hk.LayerNorm(axis=-1, create_scale=True, create_offset=True)(layers.Linear(first)(x))
        x = jnp.tanh(x)
        for size in others:
            x = jax.nn.elu(layers.Linear(size)(x))
        return x


class Critic(hk.Module):
    """An action-value network, `(observation [B, ...], action [B, A]) -> [B]`.

    With `outputs`, it returns `[B, outputs]`, for a distribution's logits.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        outputs: int | None = None,
        layer_norm: bool = False,
        torso: str | torsos.Torso | None = None,
        name: str | None = None,
    ):
        super().__init__(name)
        self._sizes, self._outputs, self._layer_norm, self._torso = sizes, outputs, layer_norm, torso

    def __call__(self, observation: Tree, action: Array) -> Array:
        x = jnp.concatenate([torsos.features(self._torso, observation), action], axis=-1)
        x = layers.Linear(self._outputs or 1)(MLP(self._sizes, layer_norm=self._layer_norm)(x))
        return x if self._outputs else x[:, 0]


class DeterministicPolicy(hk.Module):
    """A deterministic policy with a tanh output, `observation [B, ...] -> action [B, A]`."""

    def __init__(
        self,
        size: int,
        sizes: Sequence[int],
        *,
        layer_norm: bool = False,
        torso: str | torsos.Torso | None = None,
        name: str | None = None,
    ):
        super().__init__(name)
        self._size, self._sizes, self._layer_norm, self._torso = size, sizes, layer_norm, torso

    def __call__(self, observation: Tree) -> Array:
        x = MLP(self._sizes, layer_norm=self._layer_norm)(torsos.features(self._torso, observation))
        return jnp.tanh(layers.Linear(self._size)(x))


class SquashedGaussianPolicy(hk.Module):
    """A policy with a tanh-squashed normal distribution, `observation [B, ...] -> SquashedGaussian [B, A]`.

    The logarithm of the standard deviation is clipped to `log_stddev_range`, [-20, 2] in Haarnoja et al.'s code.
    """

    def __init__(
        self,
        size: int,
        sizes: Sequence[int],
        *,
        layer_norm: bool = False,
        log_stddev_range: tuple[float, float] = (-20.0, 2.0),
        torso: str | torsos.Torso | None = None,
        name: str | None = None,
    ):
        super().__init__(name)
        self._size, self._sizes, self._layer_norm, self._torso = size, sizes, layer_norm, torso
        self._log_stddev_range = log_stddev_range

    def __call__(self, observation: Tree) -> SquashedGaussian:
        x = MLP(self._sizes, layer_norm=self._layer_norm)(torsos.features(self._torso, observation))
        mean, log_stddev = jnp.split(layers.Linear(2 * self._size)(x), 2, axis=-1)
        return SquashedGaussian(mean, jnp.exp(jnp.clip(log_stddev, *self._log_stddev_range)))


class GaussianPolicy(hk.Module):
    """A policy with a normal distribution, `observation [B, ...] -> Gaussian [B, A]`; samples may be outside [-1, 1].

    The standard deviation is the softplus of the network's output, scaled so that it starts near `init_stddev`, plus
    `min_stddev`.
    """

    def __init__(
        self,
        size: int,
        sizes: Sequence[int],
        *,
        layer_norm: bool = False,
        init_stddev: float = 0.3,
        min_stddev: float = 1e-6,
        torso: str | torsos.Torso | None = None,
        name: str | None = None,
    ):
        super().__init__(name)
        self._size, self._sizes, self._layer_norm, self._torso = size, sizes, layer_norm, torso
        self._init_stddev, self._min_stddev = init_stddev, min_stddev

    def __call__(self, observation: Tree) -> Gaussian:
        x = MLP(self._sizes, layer_norm=self._layer_norm)(torsos.features(self._torso, observation))
        mean, raw = jnp.split(layers.Linear(2 * self._size)(x), 2, axis=-1)
        scale = self._init_stddev / jax.nn.softplus(0.0)
        return Gaussian(mean, scale * jax.nn.softplus(raw) + self._min_stddev)


class Networks(NamedTuple):
    """A policy and a critic, for actions in [-1, 1]; neither network uses a random key."""

    action_size: int  # A
    policy: hk.Transformed  # observation [B, ...] -> action [B, A], or a distribution of actions
    critic: hk.Transformed  # (observation [B, ...], action [B, A]) -> q [B]; agents with two critics use it twice


def make_networks(
    policy_class: type[DeterministicPolicy] | type[SquashedGaussianPolicy],
    action_size: int,
    sizes: Sequence[int],
    *,
    layer_norm: bool,
    torso: str | torsos.Torso | None,
) -> Networks:
    """Returns a policy and a critic with the same kind of hidden layers, see `MLP`; each has its own torso."""

    def policy(observation: Tree) -> Array | SquashedGaussian:
        return policy_class(action_size, sizes, layer_norm=layer_norm, torso=torso)(observation)

    def critic(observation: Tree, action: Array) -> Array:
        return Critic(sizes, layer_norm=layer_norm, torso=torso)(observation, action)

    return Networks(action_size, hk.transform(policy), hk.transform(critic))


def init_twins(init: Callable[..., Params], key: Array, *examples: Any) -> Params:
    """Returns the parameters of two networks with different random initial values, each array `[2, ...]`.

    Args:
        init: `(key, *examples) -> params` for one network.
        key: random key for both.
        examples: example inputs of the network.
    """
    return jax.vmap(lambda key: init(key, *examples))(jax.random.split(key))


def apply_twins(apply: Callable[..., Array], params: Params, *inputs: Any) -> Array:
    """Returns the outputs `[2, B, ...]` of two networks from `init_twins` for the same inputs.

    Args:
        apply: `(params, key, *inputs) -> output [B, ...]` for one network; the key is None.
        params: `[2, ...]`.
        inputs: `[B, ...]`.
    """
    return jax.vmap(lambda params: apply(params, None, *inputs))(params)
