"""The contract of learning: pure functions over one state."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from acme_ext.types import Array, Params, Sample, Tree


class LearnerCore(NamedTuple):
    """An algorithm's learning as three pure functions; the one `Learner` compiles and drives them."""

    init: Callable[[Array], Any]
    """`key -> state`, a NamedTuple of everything a resume needs."""

    step: Callable[[Any, Sample], tuple[Any, dict[str, Array], Array | None]]
    """`(state, sample) -> (state, metrics, priorities [B] or None)`: one SGD step. `metrics["loss"]` is always
    there.
    """

    variables: Callable[[Any], dict[str, Params]]
    """`state -> {name: params}`: what actors may ask for."""

    def abstract_state(self) -> Any:
        """Returns the state's structure with shapes and dtypes for leaves, without computing it."""
        return jax.eval_shape(self.init, jax.random.key(0))


class LossOutput(NamedTuple):
    """What a loss gives besides its value."""

    metrics: dict[str, Array]  # scalars
    priority: Array | None = None  # [B] new priorities of the items of the batch


Loss = Callable[[Params, Params, Any, Array, Array], tuple[Array, LossOutput]]
"""`(params, target_params, data, weight [B], key) -> (loss [], LossOutput)`, the loss a mean over the batch."""


class TargetUpdate(NamedTuple):
    """How the target network follows the online one; it starts as its copy."""

    period: int = 1  # learner steps between updates
    rate: float = 1.0  # 1 copies; below, target <- rate * online + (1 - rate) * target (Polyak averaging)

    def __call__(self, online: Params, target: Params, steps: Array) -> Params:
        """Returns the target parameters after learner step `steps`."""
        moved = online if self.rate == 1 else optax.incremental_update(online, target, self.rate)
        return moved if self.period == 1 else optax.periodic_update(moved, target, steps, self.period)


class State(NamedTuple):
    """The learning state of an agent with one loss."""

    params: Params
    target_params: Params
    optimizer: optax.OptState
    key: Array  # the random key of all steps to come
    steps: Array  # [] int32, SGD steps taken
    max_priority: Array  # [] float32, the largest priority any item was given so far


class Trained(NamedTuple):
    """Parameters with the optimizer's state that goes with them."""

    params: Params
    optimizer: optax.OptState


class Descent(NamedTuple):
    """What a step down a gradient found."""

    loss: Array  # []
    aux: Any  # what the loss gave besides
    gradient_norm: Array  # [] global, before the optimizer


def sgd_step(
    loss: Callable[..., tuple[Array, Any]], optimizer: optax.GradientTransformation, trained: Trained, *inputs: Any
) -> tuple[Trained, Descent]:
    """Returns the parameters after one step of an optimizer down the gradient of `loss(params, *inputs)`, which gives
    `(loss [], aux)`.
    """
    (value, aux), gradient = jax.value_and_grad(loss, has_aux=True)(trained.params, *inputs)
    updates, opt_state = optimizer.update(gradient, trained.optimizer, trained.params)
    params: Params = optax.apply_updates(trained.params, updates)
    return Trained(params, opt_state), Descent(value, aux, _norm(gradient))


def _norm(tree: Tree) -> Array:
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))


def importance_weights(probability: Array, exponent: Array | float) -> Array:
    """Returns importance weights `[B]`, scaled by the largest of the batch (Schaul et al. 2016, section 3.4).

    w_i = (1 / (N P_i))**beta / max_j w_j; the table's size N cancels.

    Args:
        probability: `[B]` P_i with which each item was drawn.
        exponent: beta in [0, 1].
    """
    log_weight = -exponent * jnp.log(jnp.maximum(probability, 1e-20))
    return jnp.exp(log_weight - jnp.max(log_weight))


def single_loss_core(
    loss: Loss,
    init_params: Callable[[Array], Params],
    optimizer: optax.GradientTransformation,
    *,
    target_update: TargetUpdate | None = None,
    importance_exponent: Callable[[Array], Array] | None = None,
    variables: Callable[[State], dict[str, Params]] = lambda state: {"policy": state.params},
) -> LearnerCore:
    """Returns the core of an agent with one loss, one optimizer and one target network.

    Args:
        loss: see `Loss`.
        init_params: `key -> params`.
        optimizer: from Optax.
        target_update: None keeps no target: the loss is given the online parameters twice.
        importance_exponent: `learner steps -> beta`, for replay that is sampled unevenly; None weighs all items the
            same.
        variables: what actors may ask for.
    """

    def init(key: Array) -> State:
        key, params_key = jax.random.split(key)
        params = init_params(params_key)
        return State(
            params=params,
            target_params=params if target_update else (),
            optimizer=optimizer.init(params),
            key=key,
            steps=jnp.zeros((), jnp.int32),
            max_priority=jnp.ones((), jnp.float32),
        )

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], Array | None]:
        key, loss_key = jax.random.split(state.key)
        if importance_exponent is None:
            weight = jnp.ones_like(sample.probability)
        else:
            weight = importance_weights(sample.probability, importance_exponent(state.steps))
        target = state.target_params if target_update else state.params
        trained = Trained(state.params, state.optimizer)
        (params, opt_state), descent = sgd_step(loss, optimizer, trained, target, sample.data, weight, loss_key)
        output: LossOutput = descent.aux
        steps = state.steps + 1
        max_priority = state.max_priority
        if output.priority is not None:
            max_priority = jnp.maximum(max_priority, jnp.max(output.priority))
        new_state = State(
            params=params,
            target_params=target_update(params, state.target_params, steps) if target_update else (),
            optimizer=opt_state,
            key=key,
            steps=steps,
            max_priority=max_priority,
        )
        metrics = {"loss": descent.loss, "gradient_norm": descent.gradient_norm, **output.metrics}
        return new_state, metrics, output.priority

    return LearnerCore(init, step, variables)
