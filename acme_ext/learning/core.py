"""The interface of learning algorithms: pure functions of one state."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import optax

from acme_ext.types import Array, Params, Sample, Tree

AnyState = TypeVar("AnyState")


@dataclasses.dataclass(frozen=True)
class LearnerCore(Generic[AnyState]):
    """A learning algorithm as three pure functions, which the `Learner` compiles and calls.

    An agent's `make_core(networks, config, observation)` returns it. The example observation `[1, ...]` determines the
    shapes of the parameters.
    """

    init: Callable[[Array], AnyState]
    """`key -> state`: returns the initial state, a NamedTuple of everything that is needed to resume."""

    step: Callable[[AnyState, Sample], tuple[AnyState, dict[str, Array], Array | None]]
    """`(state, sample) -> (state, metrics, errors)`: one learner step, which may make several updates by an optimizer.
    The metrics always include "loss". `errors` `[B]` are the items' errors, at least 0, which become the priorities of
    a prioritized replay: |TD errors|, unless an agent's losses say otherwise; None for algorithms without them.
    """

    variables: Callable[[AnyState], dict[str, Params]]
    """`state -> {name: params}`: the variables that actors can get; the policy's parameters are named "policy"."""

    def abstract_state(self) -> AnyState:
        """Returns the state's structure with shapes and dtypes as leaves, without computing the state."""
        return jax.eval_shape(lambda: self.init(jax.random.key(0)))


def is_finite(metrics: Mapping[str, Array], errors: Array | None) -> Array:
    """Returns whether a step's loss, its gradient's norm (if that is a metric) and its errors are finite."""
    finite = jnp.isfinite(metrics["loss"]) & jnp.isfinite(metrics.get("gradient_norm", 0.0))
    return finite if errors is None else finite & jnp.isfinite(errors).all()


class LossOutput(NamedTuple):
    """The outputs of a loss function besides its value."""

    metrics: Mapping[str, Array]  # scalars
    error: Array | None = None  # [B] errors of the batch's items, at least 0, for prioritized replay


Loss = Callable[[Params, Params, Any, Array, Array], tuple[Array, LossOutput]]
"""`(params, target_params, data, weight [B], key) -> (loss [], LossOutput)`, the loss a mean over the batch."""


class TargetUpdate(NamedTuple):
    """How the target network is updated; it starts as a copy of the online network."""

    period: int = 1  # learner steps between updates
    rate: float = 1.0  # 1: copy; below 1: target <- rate * online + (1 - rate) * target (Polyak averaging)

    def __call__(self, online: Params, target: Params, steps: Array) -> Params:
        """Returns the target parameters after learner step `steps`."""
        moved = online if self.rate == 1 else optax.incremental_update(online, target, self.rate)
        return moved if self.period == 1 else optax.periodic_update(moved, target, steps, self.period)


class State(NamedTuple):
    """The learning state of an agent with one loss."""

    params: Params
    target_params: Params
    optimizer: optax.OptState
    key: Array  # the random key for all future steps
    steps: Array  # [] int32, SGD steps taken


class TrainState(NamedTuple):
    """Parameters and the state of their optimizer."""

    params: Params
    optimizer: optax.OptState


class UpdateInfo(NamedTuple):
    """The loss and the gradient of an optimizer's update."""

    loss: Array  # []
    aux: Any  # the loss function's auxiliary output
    gradient_norm: Array  # [] global norm, before the optimizer clips it


def sgd_step(
    loss: Callable[..., tuple[Array, Any]], optimizer: optax.GradientTransformation, state: TrainState, *inputs: Any
) -> tuple[TrainState, UpdateInfo]:
    """Returns the state after one update with the gradient of `loss(params, *inputs) -> (loss [], aux)`."""
    (value, aux), gradient = jax.value_and_grad(loss, has_aux=True)(state.params, *inputs)
    updates, opt_state = optimizer.update(gradient, state.optimizer, state.params)
    params: Params = optax.apply_updates(state.params, updates)
    return TrainState(params, opt_state), UpdateInfo(value, aux, _norm(gradient))


def _norm(tree: Tree) -> Array:
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))


class HasPolicy(Protocol):
    """A core's state that includes a policy."""

    @property
    def policy(self) -> TrainState: ...


def policy_params(state: HasPolicy) -> dict[str, Params]:
    """Returns the `variables` of a core whose state includes a policy: the policy's parameters."""
    return {"policy": state.policy.params}


def single_loss_core(
    loss: Loss,
    init_params: Callable[[Array], Params],
    optimizer: optax.GradientTransformation,
    *,
    target_update: TargetUpdate | None = None,
) -> LearnerCore[State]:
    """Returns the core of an agent with one loss, one optimizer and one target network.

    Args:
        loss: see `Loss`.
        init_params: `key -> params`.
        optimizer: an Optax optimizer.
        target_update: when to update the target network. None for no target network: the loss then receives the online
            parameters twice.
    """

    def init(key: Array) -> State:
        key, params_key = jax.random.split(key)
        params = init_params(params_key)
        target = params if target_update else ()
        return State(params, target, optimizer.init(params), key, jnp.zeros((), jnp.int32))

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], Array | None]:
        key, loss_key = jax.random.split(state.key)
        target = state.target_params if target_update else state.params
        gradient_of = jax.value_and_grad(loss, has_aux=True)
        (value, output), gradient = gradient_of(state.params, target, sample.data, sample.weight, loss_key)
        updates, opt_state = optimizer.update(gradient, state.optimizer, state.params)
        params: Params = optax.apply_updates(state.params, updates)
        steps = state.steps + 1
        target = target_update(params, state.target_params, steps) if target_update else ()
        metrics = {**output.metrics, "loss": value, "gradient_norm": _norm(gradient)}
        return State(params, target, opt_state, key, steps), metrics, output.error

    return LearnerCore(init, step, lambda state: {"policy": state.params})
