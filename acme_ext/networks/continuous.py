"""Networks of agents with continuous actions, which are vectors `[B, A]` in [-1, 1].

A torso comes first, see `torsos.features`: by default images and grids go through convolutions, and every other
observation is joined into one vector, a dict's fields in the order of their names.
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
    """Affine layers with a nonlinearity after each, `[B, F] -> [B, sizes[-1]]`.

    ReLUs as in Lillicrap et al. 2016 and after; or with `layer_norm`, normalisation and tanh after the first layer and
    ELUs after the others (Abdolmaleki et al. 2018, appendix D, and DeepMind's agents since), which makes up for
    observations of different scales.
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
    """What an action is worth: `(observation [B, ...], action [B, A]) -> [B]`; or with `outputs`, `[B, outputs]`, for a
    distribution's logits.
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
    """One action, by a tanh: `observation [B, ...] -> action [B, A]`."""

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
    """A normal distribution behind a tanh: `observation [B, ...] -> SquashedGaussian [B, A]`.

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
    """A normal distribution whose samples may leave [-1, 1]: `observation [B, ...] -> Gaussian [B, A]`.

    The standard deviation is a softplus of the network's output, scaled to start near `init_stddev`, and at least
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
    """A policy and a critic. Actions are in [-1, 1]; neither network is given a random key."""

    action_size: int  # A
    policy: hk.Transformed  # observation [B, ...] -> action [B, A], or their distribution
    critic: hk.Transformed  # (observation [B, ...], action [B, A]) -> q [B]; one of the two, where there are two


def make_networks(
    policy_class: type[DeterministicPolicy] | type[SquashedGaussianPolicy],
    action_size: int,
    sizes: Sequence[int],
    torso: str | torsos.Torso | None,
) -> Networks:
    """Returns a policy and a critic with hidden layers of the same sizes, each with a torso of its own."""

    def policy(observation: Tree) -> Array | SquashedGaussian:
        return policy_class(action_size, sizes, torso=torso)(observation)

    def critic(observation: Tree, action: Array) -> Array:
        return Critic(sizes, torso=torso)(observation, action)

    return Networks(action_size, hk.transform(policy), hk.transform(critic))


def init_twins(init: Callable[..., Params], key: Array, *examples: Any) -> Params:
    """Returns the parameters of two networks that differ in their start alone, each array `[2, ...]`.

    Args:
        init: `(key, *examples) -> params` of one network.
        key: of both.
        examples: what one is applied to.
    """
    return jax.vmap(lambda key: init(key, *examples))(jax.random.split(key))


def apply_twins(apply: Callable[..., Array], params: Params, *inputs: Any) -> Array:
    """Returns the outputs `[2, B, ...]` of networks made by `init_twins`, both on the same inputs.

    Args:
        apply: `(params, key, *inputs) -> output [B, ...]` of one network, which is given no key.
        params: `[2, ...]`.
        inputs: `[B, ...]`.
    """
    return jax.vmap(lambda params: apply(params, None, *inputs))(params)
