"""From an observation to features."""

from collections.abc import Sequence

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.networks import layers
from acme_ext.types import Array, Tree


class NatureTorso(hk.Module):
    """The convolutional torso of Mnih et al. 2015 (Methods, 'Model architecture'): `[B, H, W, C]` uint8 -> `[B, F]`,
    pixels / 255.
    """

    def __call__(self, pixels: Array) -> Array:
        x = pixels.astype(jnp.float32) / 255.0
        for channels, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            x = jax.nn.relu(layers.Conv2D(channels, kernel, stride)(x))
        return hk.Flatten()(x)


class SmallGridTorso(hk.Module):
    """The convolutional torso of MinAtar (Young and Tian 2019, section 4): `[B, 10, 10, C]` -> `[B, F]`."""

    def __call__(self, grid: Array) -> Array:
        x = jax.nn.relu(layers.Conv2D(16, 3)(grid.astype(jnp.float32)))
        return hk.Flatten()(x)


def flatten_observation(observation: Tree) -> Array:
    """Joins all fields of an observation, in the order of their names, into one vector `[B, F]`, float32."""
    leaves = jax.tree.leaves(observation)
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1).astype(jnp.float32) for leaf in leaves], axis=-1)


def is_image(observation: Tree) -> bool:
    """Whether an observation is a batch of images or grids with channels, `[B, H, W, C]` with C of more than 1."""
    return hasattr(observation, "ndim") and observation.ndim == 4 and observation.shape[-1] > 1


def default_body(observation: Tree, hidden_sizes: Sequence[int]) -> Array:
    """Returns features `[B, F]` by what the observation is, for a head that has hidden layers of its own.

    Images of 32 pixels or more go through the Nature torso, grids with channels through MinAtar's, everything else is
    flattened and goes through an MLP of `hidden_sizes`; ReLU throughout.
    """
    if is_image(observation):
        torso = NatureTorso() if min(observation.shape[1:3]) >= 32 else SmallGridTorso()
        return torso(observation)
    return layers.MLP(hidden_sizes)(flatten_observation(observation))


def default_torso(observation: Tree, hidden_sizes: Sequence[int], image_features: int) -> Array:
    """Returns features `[B, F]`: those of `default_body`, and for images one layer of `image_features` behind."""
    features = default_body(observation, hidden_sizes)
    return jax.nn.relu(layers.Linear(image_features)(features)) if is_image(observation) else features
