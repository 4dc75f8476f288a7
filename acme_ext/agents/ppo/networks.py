"""PPO's policy and value network."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext import specs
from acme_ext.acting.stochastic import Distribution
from acme_ext.agents.ppo.config import AdvantageConfig
from acme_ext.agents.ppo.losses import clip_rewards
from acme_ext.learning.normalize import VALUE_LAYER
from acme_ext.networks import layers, recurrent, torsos
from acme_ext.ops.gaussian import Gaussian
from acme_ext.ops.policy import Categorical
from acme_ext.types import Array, EnvironmentSpec, Tree


class Output(NamedTuple):
    """The network's outputs at every timestep."""

    policy: Distribution  # [T, B, ...]
    value: Array  # [T, B], or [T, B, num_values], normalised with `normalize_values`


def make_network(
    spec: EnvironmentSpec,
    config: AdvantageConfig,
    torso: str | torsos.Torso | None = None,
    core: str | recurrent.MakeCore | None = None,
    *,
    num_values: int | None = None,
) -> recurrent.RecurrentNetwork:
    """Returns the network, whose output is an `Output`.

    Policy and value are separate MLPs (Schulman et al. 2017, section 6.1), or two linear heads of one MLP with
    `config.share_layers` (Mnih et al. 2016, section 4). For images they share a convolutional torso (Schulman et al.
    2017, section 6.4). They also share a torso or a recurrent core passed as an argument.

    Recurrent cores, custom torsos and the torso "residual" keep their own initialization. All other layers have
    orthogonal initialization with a gain of sqrt(2), except the last layers: the policy's has a gain of 0.01, so that
    all actions are about equally likely at first, and the value's has a gain of 1.

    Args:
        spec: the environment's spec.
        config: the agent's config.
        torso: see `torsos.features`.
        core: see `recurrent.make_core`.
        num_values: number of predicted values; None for a single value without an extra axis.
    """
    actions = specs.num_actions(spec, "PPO") if specs.is_discrete(spec) else specs.action_size(spec, "PPO")
    convolutional = torsos.is_image(specs.zeros(spec.observations, 1))
    made = recurrent.make_core(core, config.core_size)
    apart = torso is None and made is None and not convolutional and not config.share_layers

    def features(observation: Tree) -> Array:
        if torso is not None:
            return torsos.features(torso, observation, w_init=_orthogonal(_HIDDEN_GAIN))
        if convolutional:
            return jax.nn.relu(
                _linear(config.image_features, _HIDDEN_GAIN)(
                    torsos.features(None, observation, w_init=_orthogonal(_HIDDEN_GAIN))
                )
            )
        flat = torsos.flatten_observation(observation)
        return flat if apart else _tanh_mlp(flat, config.hidden_sizes)

    def head(x: Array) -> Output:
        policy, value = (_tanh_mlp(x, config.hidden_sizes) for _ in range(2)) if apart else (x, x)
        if specs.is_discrete(spec):
            distribution = Categorical(hk.Linear(actions, w_init=layers.POLICY_W_INIT)(policy))
        else:
            distribution = _gaussian(policy, actions, config.init_stddev)
        value = _linear(num_values or 1, 1.0, name=VALUE_LAYER if config.popart else None)(value)
        return Output(distribution, value[:, 0] if num_values is None else value)

    clip = functools.partial(clip_rewards, max_abs=config.max_abs_reward)
    return recurrent.recurrent_network(spec, features, made, head, prepare_reward=clip)


_HIDDEN_GAIN = 2**0.5


def _linear(size: int, gain: float, name: str | None = None) -> Callable[..., jax.Array]:
    return hk.Linear(size, w_init=_orthogonal(gain), name=name)


def _orthogonal(gain: float) -> hk.initializers.Initializer:
    return hk.initializers.Orthogonal(gain)


def _tanh_mlp(x: Array, sizes: Sequence[int]) -> Array:
    for size in sizes:
        x = jnp.tanh(_linear(size, _HIDDEN_GAIN)(x))
    return x


def _gaussian(features: Array, size: int, init_stddev: float) -> Gaussian:
    mean = hk.Linear(size, w_init=layers.POLICY_W_INIT)(features)
    start = hk.initializers.Constant(math.log(init_stddev))
    log_stddev = hk.get_parameter("log_stddev", (size,), init=start)
    return Gaussian(mean, jnp.broadcast_to(jnp.exp(log_stddev), mean.shape))
