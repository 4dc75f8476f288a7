"""PPO's learning: advantages and targets of a batch are computed once, followed by several epochs of updates."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from acme_ext.acting.stochastic import VersionedParams, among_legal
from acme_ext.agents.ppo import losses
from acme_ext.agents.ppo.config import AdvantageConfig, PPOConfig
from acme_ext.errors import UsageError
from acme_ext.learning import normalize, optimizers
from acme_ext.learning.core import LearnerCore, TrainState, sgd_step
from acme_ext.learning.normalize import Moments
from acme_ext.learning.on_policy import lag, masked_mean, normalized_advantages
from acme_ext.networks.recurrent import Inputs, RecurrentNetwork
from acme_ext.ops.policy import importance_ratios, truncated_generalized_advantage_estimation
from acme_ext.types import Array, Params, Sample, Sequence, Tree
from acme_ext.utils.trees import merge_axes

PolicyLoss = Callable[[Array, Array, Array, Array], Array]
"""`(log_prob [T, B], behaviour_log_prob [T, B], advantage [T, B], learner steps []) -> loss [T, B]`."""

Advantages = Callable[[Sequence, Array], tuple[Array, Array]]
"""`(unrolls, values [T + 1, B, ...]) -> (advantage [T, B], targets of the values [T, B, ...])`."""


class State(NamedTuple):
    """The learning state, with everything that is needed to resume."""

    trained: TrainState
    values: Moments  # [...] moments of the value targets
    key: Array  # random key for the next steps
    steps: Array  # [] int32, learner steps taken, one for each batch


class Steps(NamedTuple):
    """A minibatch of steps, with the results that are computed once for the batch.

    With a recurrent core, B is the number of whole unrolls. Without one, the order of steps doesn't matter, and T is 1.
    """

    inputs: Inputs  # [T, B, ...] with normalised observations
    state: Tree  # [B, ...] the recurrent core's state before the first step
    action: Array  # [T, B, ...]
    log_prob: Array  # [T, B] log-probability under the policy that took the action
    advantage: Array  # [T, B]
    value: Array  # [T, B, ...] the network's values before the updates
    target: Array  # [T, B, ...] value targets, normalised
    mask: Array  # [T, B]

    def take(self, chosen: Array) -> "Steps":
        """Returns the columns `chosen` `[N]`."""
        timed = jax.tree.map(lambda x: x[:, chosen], self._replace(state=()))
        return timed._replace(state=jax.tree.map(lambda x: x[chosen], self.state))


def make_core(
    network: RecurrentNetwork,
    config: PPOConfig,
    observation: Tree,
    *,
    advantages: Advantages | None = None,
    num_values: int | None = None,
) -> LearnerCore[State]:
    """Returns PPO's learner core; see `core_of_policy_loss` for the arguments."""

    clip = optimizers.decayed(config.clip, config.clip_decay_steps)

    def policy_loss(log_prob: Array, behaviour_log_prob: Array, advantage: Array, learner_steps: Array) -> Array:
        ratios = importance_ratios(log_prob, behaviour_log_prob)
        epsilon: Any = clip(learner_steps) if callable(clip) else clip
        return losses.clipped_surrogate_pg_loss(ratios, advantage, epsilon)

    parts = config.num_minibatches
    if network.core is not None:
        parts = min(parts, config.batch_size)
        if config.batch_size % parts:
            raise UsageError(
                f"num_minibatches is {parts}: with a recurrent core, minibatches have whole unrolls, so that it must "
                f"divide batch_size, which is {config.batch_size}."
            )
    learning_rate = optimizers.decayed(
        config.learning_rate, config.learning_rate_decay_steps, updates=config.num_epochs * parts
    )
    optimizer = optax.adam(learning_rate, eps=config.adam_epsilon)
    return core_of_policy_loss(
        policy_loss,
        network,
        config,
        optimizer,
        observation,
        epochs=config.num_epochs,
        parts=parts,
        advantages=advantages,
        num_values=num_values,
        value_clip=config.value_clip,
        target_kl=config.target_kl,
    )


def core_of_policy_loss(
    policy_loss: PolicyLoss,
    network: RecurrentNetwork,
    config: AdvantageConfig,
    optimizer: optax.GradientTransformation,
    observation: Tree,
    *,
    epochs: int,
    parts: int,
    advantages: Advantages | None = None,
    num_values: int | None = None,
    value_clip: float | None = None,
    target_kl: float | None = None,
    values_variance: float = 1.0,
) -> LearnerCore[State]:
    """Returns the core of an agent that learns from advantages; a step takes a batch of unrolls.

    loss = mean policy_loss + value_coef * mean (V - V_target)**2 - entropy_coef * mean entropy

    Args:
        policy_loss: see `PolicyLoss`.
        network: see `networks.make_network`.
        config: the agent's config.
        optimizer: gets gradients that are already clipped by their norm.
        observation: an example `[1, ...]`, for the parameters' shapes.
        epochs: number of passes over each batch.
        parts: number of minibatches; each epoch splits the batch randomly.
        advantages: see `Advantages`; None for generalized advantage estimation with the reward.
        num_values: number of values that the network predicts, `[T, B, num_values]`, whose losses are added; None for a
            single value `[T, B]`.
        value_clip: see `PPOConfig`.
        target_kl: see `PPOConfig`.
        values_variance: initial variance of the value targets, see `normalize.init`.
    """
    optimizer = optimizers.bounded(optimizer, config.max_gradient_norm)

    def init(key: Array) -> State:
        key, params_key = jax.random.split(key)
        params = network.init(params_key, observation)
        return State(
            trained=TrainState(params, optimizer.init(params)),
            values=normalize.init(jnp.zeros(() if num_values is None else num_values), values_variance),
            key=key,
            steps=jnp.zeros((), jnp.int32),
        )

    def loss(params: Params, steps: Steps, learner_steps: Array) -> tuple[Array, dict[str, Array]]:
        output, _ = network.unroll(params, steps.inputs, steps.state)
        policy = among_legal(output.policy, steps.inputs.observation)
        log_prob, entropy = policy.log_prob(steps.action), policy.entropy()
        advantage = steps.advantage
        if config.normalize_advantages:
            advantage = normalized_advantages(advantage, steps.mask)
        of_policy = masked_mean(policy_loss(log_prob, steps.log_prob, advantage, learner_steps), steps.mask)
        of_values = losses.value_loss(output.value, steps.target, steps.value, value_clip)
        of_value = masked_mean(of_values if num_values is None else jnp.sum(of_values, axis=-1), steps.mask)
        metrics = {
            "policy_loss": of_policy,
            "value_loss": of_value,
            "entropy": masked_mean(entropy, steps.mask),
            "kl": masked_mean(losses.kl_divergence(log_prob, steps.log_prob), steps.mask),
        }
        total = of_policy + config.value_coef * of_value - config.entropy_coef * metrics["entropy"]
        return total, metrics

    def of_reward(unrolls: Sequence, values: Array) -> tuple[Array, Array]:
        reward = losses.clip_rewards(unrolls.reward[1:], config.max_abs_reward)
        advantage = truncated_generalized_advantage_estimation(
            reward, unrolls.discount, config.gae_lambda, values, unrolls.mask
        )
        return advantage, advantage + values[:-1]

    def prepared(state: State, unrolls: Sequence) -> tuple[Steps, Moments]:
        """Returns the batch's steps, and the moments that normalise their value targets."""
        inputs = network.inputs_of(unrolls)
        core_state = network.core_state_of(unrolls)
        output, _ = network.unroll(state.trained.params, inputs, core_state)
        values = output.value
        if config.normalize_values:
            values = normalize.denormalize(state.values, values)
        advantage, target = (advantages or of_reward)(unrolls, values)
        value, moments = output.value[:-1], state.values
        if config.normalize_values:
            moments = normalize.update(moments, target, unrolls.mask, config.value_horizon)
            target = normalize.normalize(moments, target)
            if config.popart:  # the corrected last layer's outputs
                value = normalize.normalize(moments, values[:-1])
            if num_values is None:
                advantage = advantage / normalize.stddev(moments)
        steps = Steps(
            inputs=jax.tree.map(lambda x: x[:-1], inputs),
            state=core_state,
            action=unrolls.action,
            log_prob=unrolls.extras.log_prob,
            advantage=advantage,
            value=value,
            target=target,
            mask=unrolls.mask,
        )
        if network.core is None:
            steps = jax.tree.map(lambda x: x[None], merge_axes(steps))
        return jax.tree.map(jnp.asarray, steps), moments

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], None]:
        unrolls: Sequence = sample.data
        steps, values = prepared(state, unrolls)
        key, shuffle_key = jax.random.split(state.key)
        order = jax.vmap(lambda key: jax.random.permutation(key, steps.mask.shape[1]))(
            jax.random.split(shuffle_key, epochs)
        )

        def learn(carry: tuple[TrainState, Array], chosen: Array):
            trained, going = carry
            after, info = sgd_step(loss, optimizer, trained, steps.take(chosen), state.steps)
            metrics = {"loss": info.loss, "gradient_norm": info.gradient_norm, **info.aux}
            if target_kl is not None:
                going &= metrics["kl"] <= 1.5 * target_kl
                after = _chosen(going, after, trained)
                metrics["learned_share"] = going.astype(jnp.float32)
            return (after, going), metrics

        trained = state.trained
        if config.popart:
            trained = trained._replace(params=normalize.corrected(trained.params, state.values, values))
        carry = (trained, jnp.bool_(True))
        (trained, _), metrics = jax.lax.scan(learn, carry, order.reshape(epochs * parts, -1))
        metrics = {**jax.tree.map(jnp.mean, metrics), **lag(state.steps, unrolls)}
        return State(trained, values, key, state.steps + 1), metrics, None

    def variables(state: State) -> dict[str, Any]:
        return {"policy": VersionedParams(state.trained.params, state.steps)}

    return LearnerCore(init, step, variables)


def _chosen(learned: Array, after: TrainState, before: TrainState) -> TrainState:
    """Returns the state after a minibatch if it was learned from, otherwise the one before.

    The count of a schedule goes on in any case, so that the learning rate falls with the learner's steps.
    """

    def of_schedule(x: Tree) -> bool:
        return isinstance(x, optax.ScaleByScheduleState)

    return jax.tree.map(
        lambda new, old: new if of_schedule(new) else jnp.where(learned, new, old), after, before, is_leaf=of_schedule
    )
