"""Torsos: the first layers of networks, from observations to features."""

from collections.abc import Callable, Sequence
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.config.fields import function_name, make_checked
from acme_ext.errors import UsageError
from acme_ext.networks import layers
from acme_ext.networks.resnet import ResidualTorso
from acme_ext.ops import masking
from acme_ext.specs import PICTURE_SIDE
from acme_ext.types import Array, Tree

Convolutions = Sequence[tuple[int, int, int]]
"""Convolutional layers, each as (channels, kernel size, stride)."""
NATURE: Convolutions = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""The layers of Mnih et al. 2015, Methods, 'Model architecture'."""


def fitted(convolutions: Convolutions, pixels: Array) -> Convolutions:
    """Returns the layers adapted to images `[B, H, W, C]`; unchanged if both sides have 48 pixels or more.

    The layers were designed for 84x84 pixels. For images with a side of less than 48 pixels, the first layer's kernel
    and stride are halved. Then 42x42 pixels give the second layer 20x20 positions, as 84x84 pixels do. With the
    published layer they would give 9x9, and a single position after the last layer; 32x32 pixels would give none.
    """
    if min(pixels.shape[1:3]) >= 48:
        return convolutions
    (channels, kernel, stride), *rest = convolutions
    return ((channels, kernel // 2, stride // 2), *rest)


class NatureTorso(hk.Module):
    """The convolutional torso of Mnih et al. 2015 (Methods, 'Model architecture'), `[B, H, W, C]` -> `[B, F]`.

    uint8 pixels are divided by 255. For images with a side of less than 48 pixels, the first layer is smaller, see
    `fitted`.

    Args:
        w_init: initializes the weights, with biases of 0; None for the initialization of `layers`.
    """

    convolutions = NATURE

    def __init__(self, w_init: hk.initializers.Initializer | None = None, name: str | None = None):
        super().__init__(name)
        self._w_init = w_init

    def __call__(self, pixels: Array) -> Array:
        x = layers.scaled_pixels(pixels)
        for channels, kernel, stride in fitted(self.convolutions, x):
            x = jax.nn.relu(layers.Conv2D(channels, kernel, stride, w_init=self._w_init)(x))
        return hk.Flatten()(x)


class SmallTorso(NatureTorso):
    """The convolutional torso of Mnih et al. 2013 (section 4.1) with its layer of 256 units.

    A3C uses it too (Mnih et al. 2016, section 5.1). It has the same inputs and arguments as `NatureTorso`, and needs a
    third of its multiplications.
    """

    convolutions = ((16, 8, 4), (32, 4, 2))

    def __call__(self, pixels: Array) -> Array:
        x = super().__call__(pixels)
        return jax.nn.relu((layers.Linear(256) if self._w_init is None else hk.Linear(256, w_init=self._w_init))(x))


class SmallGridTorso(hk.Module):
    """The convolutional torso of MinAtar (Young and Tian 2019, section 4), `[B, 10, 10, C]` -> `[B, F]`.

    uint8 grids are divided by 255. The argument is the same as `NatureTorso`'s.
    """

    def __init__(self, w_init: hk.initializers.Initializer | None = None, name: str | None = None):
        super().__init__(name)
        self._w_init = w_init

    def __call__(self, grid: Array) -> Array:
        x = jax.nn.relu(layers.Conv2D(16, 3, w_init=self._w_init)(layers.scaled_pixels(grid)))
        return hk.Flatten()(x)


def flatten_observation(observation: Tree) -> Array:
    """Concatenates all visible fields of an observation, in alphabetical order, to a vector `[B, F]`, float32."""
    leaves = jax.tree.leaves(masking.visible(observation))
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1).astype(jnp.float32) for leaf in leaves], axis=-1)


def is_image(observation: Tree) -> bool:
    """Whether an observation is a batch of images or grids with channels, `[B, H, W, C]`.

    This means that C is more than 1, or that H and W are 32 or more.
    """
    observation = masking.visible(observation)
    if getattr(observation, "ndim", 0) != 4:
        return False
    return observation.shape[-1] > 1 or min(observation.shape[1:3]) >= PICTURE_SIDE


Torso = Callable[[], Callable[[Tree], Array]]
"""Makes a function `observation [B, ...] -> features [B, F]`. It is called inside a Haiku transform, so it can be an
`hk.Module` class without arguments."""

TORSOS: dict[str, Callable[[hk.initializers.Initializer | None], Callable[[Tree], Array]]] = {
    "flat": lambda w_init: flatten_observation,
    "nature": NatureTorso,
    "small": SmallTorso,
    "grid": SmallGridTorso,
    "residual": lambda w_init: hk.Sequential([ResidualTorso(), layers.MLP((256,))]),
}
"""Torsos by name, as functions of the weights' initializer, see `NatureTorso`. They are: no layers at all, the
convolutions of Mnih et al. 2015, the convolutions and the layer of 256 units of Mnih et al. 2013, MinAtar's
convolution, and IMPALA's deep torso with its layer of 256 units, which ignores the initializer."""


def features(
    torso: str | Torso | None,
    observation: Tree,
    hidden_sizes: Sequence[int] = (),
    w_init: hk.initializers.Initializer | None = None,
) -> Array:
    """Returns features `[B, F]`, for a head or for further layers.

    Args:
        torso: makes the features; a `Torso` or a name in `TORSOS`. None selects by the observation: the Nature torso
            for images of 32 pixels or more, MinAtar's for smaller grids with channels, and an MLP of `hidden_sizes` for
            all others, which are flattened. All use ReLU.
        observation: `[B, ...]`; the torso's input are the fields that `masking.visible` returns.
        hidden_sizes: hidden units of the MLP.
        w_init: initializes the weights of the torsos "nature", "small" and "grid", see `NatureTorso`; others ignore it.

    Raises:
        UsageError: the torso takes arguments, or doesn't return one vector for each observation.
    """
    observation = masking.visible(observation)
    if torso is not None:
        made: Any = TORSOS[torso](w_init) if isinstance(torso, str) else make_checked("torso", torso, Any)
        x: Any = made(observation) if callable(made) else made
        batch_size = len(jax.tree.leaves(observation)[0])
        if getattr(x, "ndim", 0) != 2 or len(x) != batch_size:
            name = torso if isinstance(torso, str) else function_name(torso)
            shapes = jax.tree.map(lambda leaf: leaf.shape, observation)
            raise UsageError(
                f"the torso {name} made {getattr(x, 'shape', type(x).__name__)} of observations {shapes}: it must be "
                f"[B, F], here ({batch_size}, F)."
            )
        return x
    if is_image(observation):
        return (NatureTorso if min(observation.shape[1:3]) >= PICTURE_SIDE else SmallGridTorso)(w_init)(observation)
    return layers.MLP(hidden_sizes)(flatten_observation(observation))


def dense_features(
    torso: str | Torso | None, observation: Tree, hidden_sizes: Sequence[int], image_features: int
) -> Array:
    """Returns features `[B, F]` for a linear head.

    These are the outputs of `features`. If the default torso has convolutions, a layer of `image_features` units
    follows.
    """
    x = features(torso, observation, hidden_sizes)
    return jax.nn.relu(layers.Linear(image_features)(x)) if torso is None and is_image(observation) else x
