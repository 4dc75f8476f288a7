"""Random network distillation (Burda et al. 2018), as a component of learner cores.

A predictor network learns to predict the outputs of a random network. Its error is large for new observations, and
gives the exploration bonus.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from acme_ext.config.fields import Checked
from acme_ext.config.types import LayerSizes, Positive, PositiveInt, PositiveShare
from acme_ext.errors import UsageError
from acme_ext.learning import normalize
from acme_ext.learning.core import TrainState, sgd_step
from acme_ext.learning.normalize import Moments
from acme_ext.learning.on_policy import masked_mean
from acme_ext.networks import torsos
from acme_ext.networks.convolution import Conv2D
from acme_ext.ops import intrinsic, masking
from acme_ext.ops.pictures import is_picture
from acme_ext.specs import PICTURE_SIDE
from acme_ext.types import Array, Params, Tree
from acme_ext.utils.trees import merge_axes


@dataclasses.dataclass(frozen=True)
class DistillationConfig(Checked):
    """Random network distillation; the numbers are for small problems on a CPU."""

    features: PositiveInt = 64  # numbers that are predicted; 512 in Burda et al. 2018
    hidden_sizes: LayerSizes = (64,)  # of the random network, for observations that are not images
    predictor_sizes: LayerSizes = (64,)  # additional layers of the predictor; (512, 512) in Burda et al. 2018
    learning_rate: Positive = 1e-3  # Adam
    max_abs_observation: Positive = 5.0  # normalised observations are clipped to it; Burda et al. 2018, section 2.4
    newest_frame: bool = False  # of images, the networks are given the last channel alone: the newest of the frames
    share: PositiveShare = 1.0  # of a batch, which the predictor learns from; Burda et al. 2018, section 2.5


class DistillationParams(NamedTuple):
    """The parameters for computing the error of an observation."""

    predictor: Params
    target: Params  # of the random network
    observations: Moments


class DistillationState(NamedTuple):
    """The complete state, as it is saved in checkpoints."""

    predictor: TrainState
    target: Params
    observations: Moments
    key: Array  # the random key for all future steps
    steps: Array  # [] int32, learner steps

    @property
    def params(self) -> DistillationParams:
        """The parameters for computing errors."""
        return DistillationParams(self.predictor.params, self.target, self.observations)

    @property
    def shuffle_key(self) -> Array:
        """The random key for shuffling the bonuses of this step."""
        # `Distillation.train` splits the key into those with the numbers 0 to 2; the first is the next step's key.
        return jax.random.fold_in(self.key, 3)


class Distillation:
    """The predictor and the random network, with pure functions to train and apply them; see `DistillationState`.

    Args:
        config: see `DistillationConfig`.
        observation: an example `[1, ...]`.
    """

    def __init__(self, config: DistillationConfig, observation: Tree):
        self.config = config
        self._example = masking.visible(observation)
        if config.newest_frame and not any(map(is_picture, jax.tree.leaves(self._example))):
            raise UsageError("newest_frame is true: it is for images with channels, which the observations don't have.")
        self._optimizer = optax.adam(config.learning_rate)

        def features(observation: Tree, sizes: tuple[int, ...]) -> Array:
            if torsos.is_image(self._example):
                x = _convolutions(observation)
            else:
                x = torsos.features(None, observation, config.hidden_sizes)
            for size in sizes:
                x = jax.nn.relu(_linear(size)(x))
            return _linear(config.features)(x)

        self._target = hk.without_apply_rng(hk.transform(lambda observation: features(observation, ())))
        self._predictor = hk.without_apply_rng(
            hk.transform(lambda observation: features(observation, config.predictor_sizes))
        )

    def init(self, key: Array) -> DistillationState:
        """Returns the initial state."""
        key, *keys = jax.random.split(key, 3)
        fields = self._fields(self._example)
        target, predictor = (
            network.init(key, fields) for network, key in zip((self._target, self._predictor), keys, strict=True)
        )
        return DistillationState(
            TrainState(predictor, self._optimizer.init(predictor)),
            target,
            normalize.init(jax.tree.map(lambda x: x[0], fields)),
            key,
            jnp.zeros((), jnp.int32),
        )

    def seen(self, state: DistillationState, observation: Tree, mask: Array) -> DistillationState:
        """Returns the state with moments updated by the observations `[..., *shape]` where `mask` `[...]` is 1."""
        return state._replace(
            observations=normalize.update(state.observations, self._fields(observation), mask), steps=state.steps + 1
        )

    def errors(self, params: DistillationParams, observation: Tree) -> Array:
        """Returns the predictor's errors `[...]` for observations `[..., *shape]`."""
        fields = self._prepared(params.observations, observation)
        lead = jnp.ndim(jax.tree.leaves(fields)[0]) - jnp.ndim(jax.tree.leaves(self._example)[0]) + 1
        flat = merge_axes(fields, lead)
        errors = self._errors(params.predictor, params.target, flat)
        return errors.reshape(jax.tree.leaves(fields)[0].shape[:lead])

    def train(
        self, state: DistillationState, observation: Tree, mask: Array, *, updates: int = 1
    ) -> tuple[DistillationState, Array]:
        """Trains the predictor, and returns the new state and the mean loss `[]`.

        Args:
            state: the state.
            observation: `[N, *shape]`; each update uses a random N / `updates` of them.
            mask: `[N]` 1 for observations to learn from, 0 for others.
            updates: number of updates.
        """
        fields = self._prepared(state.observations, observation)
        key, order_key, keep_key = jax.random.split(state.key, 3)
        size = len(mask) // updates
        order = jax.random.permutation(order_key, len(mask))[: size * updates].reshape(updates, size)
        weight = mask * (jax.random.uniform(keep_key, mask.shape) < self.config.share)

        def loss(predictor: Params, fields: Tree, weight: Array) -> tuple[Array, tuple[()]]:
            return masked_mean(self._errors(predictor, state.target, fields), weight), ()

        def learn(trained: TrainState, chosen: Array) -> tuple[TrainState, Array]:
            part = jax.tree.map(lambda x: x[chosen], fields)
            trained, info = sgd_step(loss, self._optimizer, trained, part, weight[chosen])
            return trained, info.loss

        predictor, losses = jax.lax.scan(learn, state.predictor, order)
        return state._replace(predictor=predictor, key=key), jnp.mean(losses)

    def _errors(self, predictor: Params, target: Params, fields: Tree) -> Array:
        return intrinsic.distillation_error(
            self._predictor.apply(predictor, fields), self._target.apply(target, fields)
        )

    def _prepared(self, moments: Moments, observation: Tree) -> Tree:
        return normalize.normalize(moments, self._fields(observation), self.config.max_abs_observation)

    def _fields(self, observation: Tree) -> Tree:
        """Returns the visible fields as floats, and only the last channel of images if `newest_frame` is set.

        These are normalised.
        """

        def field(x: Array, example: Array) -> Array:
            x = x[..., -1:] if self.config.newest_frame and is_picture(example) else x
            return jnp.asarray(x, jnp.float32)

        return jax.tree.map(field, masking.visible(observation), self._example)


class Scale(NamedTuple):
    """Running moments of the bonuses, to scale them."""

    bonus: Moments  # [] of the bonuses of single steps
    returns: Moments  # [] of their discounted sums


def init_scale() -> Scale:
    """Returns the initial scale."""
    return Scale(normalize.init(jnp.zeros(())), normalize.init(jnp.zeros(())))


def scaled(scale: Scale, bonus: Array, mask: Array, discount: float, horizon: float = 1e8) -> tuple[Array, Scale]:
    """Returns the bonuses `[T, B]` divided by the running standard deviation of their discounted sums, and the new
    scale (Burda et al. 2018, section 2.4).

    In the paper, the sums continue for as long as an environment runs. A batch doesn't identify its environments, so
    here each sum starts from its average value.

    Args:
        scale: the scale before this batch.
        bonus: `[T, B]`.
        mask: `[T, B]` 1 for steps, 0 for padding.
        discount: discount of the sums.
        horizon: horizon of the running moments, in steps.
    """
    of_bonus = normalize.update(scale.bonus, bonus, mask, horizon)
    sums = intrinsic.running_returns(
        mask * bonus, jnp.where(mask > 0, discount, 1.0), of_bonus.mean / max(1 - discount, 1e-4)
    )
    scale = Scale(of_bonus, normalize.update(scale.returns, sums, mask, horizon))
    return mask * bonus / jnp.sqrt(scale.returns.variance + 1e-8), scale


def shuffle(key: Array, bonus: Array, mask: Array) -> Array:
    """Returns the bonuses `[T, B]`, randomly permuted among the steps where `mask` `[T, B]` is 1.

    Bonuses where it is 0 stay in their place.
    """
    flat, there = jnp.asarray(bonus).reshape(-1), jnp.asarray(mask).reshape(-1) > 0
    # The steps in order, and in random order: each step gets the bonus of the step at the same index in the second.
    place = jnp.argsort(~there, stable=True)
    source = jnp.argsort(jnp.where(there, jax.random.uniform(key, there.shape), 2.0), stable=True)
    return flat.at[place].set(flat[source]).reshape(bonus.shape)


def _linear(size: int) -> Callable[[Array], Array]:
    return hk.Linear(size, w_init=hk.initializers.Orthogonal(2**0.5))


def _convolutions(pixels: Array) -> Array:
    """Returns features `[B, F]` of images `[B, H, W, C]` (Burda et al. 2018, appendix A.3).

    Small grids, for which the kernels are too large, use two 3x3 layers instead.
    """
    picture = min(pixels.shape[1:3]) >= PICTURE_SIDE
    x = pixels
    for channels, kernel, stride in torsos.fitted(torsos.NATURE, x) if picture else ((32, 3, 1), (32, 3, 1)):
        start = hk.initializers.VarianceScaling(2.0, "fan_in", "truncated_normal")
        x = jax.nn.leaky_relu(Conv2D(channels, kernel, stride, "VALID", w_init=start)(x))
    return hk.Flatten()(x)
