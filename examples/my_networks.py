"""Custom parts of networks."""

import haiku as hk
import jax
import numpy as np

from acme_ext import specs
from acme_ext.networks.convolution import Conv2D
from acme_ext.networks.recurrent import haiku_core


def make_torso():
    """Two small convolutions and a layer, for pictures and grids: `observation [B, H, W, C] -> features [B, 128]`."""
    convolutions = [Conv2D(16, 3), jax.nn.relu, Conv2D(32, 3, stride=2), jax.nn.relu]
    layers = [hk.Flatten(), hk.Linear(128), jax.nn.relu]
    return hk.Sequential([lambda x: x.astype(np.float32), *convolutions, *layers])


def make_core(size):
    """A plain recurrent network of `size` units."""
    return haiku_core(lambda: hk.VanillaRNN(size), lambda batch: np.zeros((batch, size), np.float32))


def make_network(spec, config, torso):
    """Action values of observations that are vectors: `observation [B, D] -> q [B, A]`."""
    sizes = (*config.hidden_sizes, specs.num_actions(spec, "this network"))
    return hk.transform(lambda x: hk.nets.MLP(sizes)(x))
