"""PPO's policy and value."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.acting.stochastic import Distribution
from acme_ext.agents.ppo.config import AdvantageConfig
from acme_ext.networks import torsos
from acme_ext.ops.gaussian import Gaussian
from acme_ext.ops.policy import Categorical
from acme_ext.specs import Bounds
from acme_ext.types import Array, Tree


class Output(NamedTuple):
    """What the network makes of observations."""

    policy: Distribution  # [B, ...]; of canonical actions where they are continuous
    value: Array  # [B], in the units of `normalize_values`


def make_network(actions: int | Bounds, config: AdvantageConfig) -> hk.Transformed:
    """Returns the network `apply(params, key, observation [B, ...]) -> Output`, which is given no key.

    Policy and value are MLPs apart (Schulman et al. 2017, section 6.1), but for images, whose convolutional torso they
    share (section 6.4). Layers start orthogonal, scaled by sqrt(2), the policy's last by 0.01, so that all actions are
    about equally likely at first, and the value's by 1.

    Args:
        actions: the number of discrete ones, or the bounds of a continuous one.
        config: the agent's.
    """

    def output(observation: Tree) -> Output:
        if torsos.is_image(observation):
            features = torsos.default_body(observation, ())
            policy = value = jax.nn.relu(_linear(config.image_features, _HIDDEN_GAIN)(features))
        else:
            flat = torsos.flatten_observation(observation)
            policy, value = _tanh_mlp(flat, config.hidden_sizes), _tanh_mlp(flat, config.hidden_sizes)
        return Output(_policy_head(policy, actions, config.init_stddev), _linear(1, 1.0)(value)[:, 0])

    return hk.transform(output)


_HIDDEN_GAIN, _POLICY_GAIN = 2**0.5, 0.01


def _linear(size: int, gain: float) -> hk.Linear:
    return hk.Linear(size, w_init=hk.initializers.Orthogonal(gain))


def _tanh_mlp(x: Array, sizes: Sequence[int]) -> Array:
    for size in sizes:
        x = jnp.tanh(_linear(size, _HIDDEN_GAIN)(x))
    return x


def _policy_head(features: Array, actions: int | Bounds, init_stddev: float) -> Distribution:
    if isinstance(actions, int):
        return Categorical(_linear(actions, _POLICY_GAIN)(features))
    mean = _linear(actions.size, _POLICY_GAIN)(features)
    start = hk.initializers.Constant(math.log(init_stddev))
    log_stddev = hk.get_parameter("log_stddev", (actions.size,), init=start)
    return Gaussian(mean, jnp.broadcast_to(jnp.exp(log_stddev), mean.shape))
