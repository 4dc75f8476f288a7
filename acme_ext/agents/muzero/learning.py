"""MuZero's learning: the model is unrolled from roots, which are steps sampled from the replay's sequences."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from acme_ext.agents.muzero import losses
from acme_ext.agents.muzero.acting import own_steps, planner
from acme_ext.agents.muzero.config import MuZeroConfig, PlanningConfig
from acme_ext.agents.muzero.losses import take
from acme_ext.learning import optimizers
from acme_ext.learning.core import LearnerCore, Loss, LossOutput, State, TargetUpdate, single_loss_core
from acme_ext.networks.models import ModelNetwork
from acme_ext.types import Array, Params, Sequence, Tree
from acme_ext.utils.trees import merge_axes


def make_optimizer(config: PlanningConfig) -> optax.GradientTransformation:
    """Returns AdamW, with gradient clipping by global norm."""
    learning_rate = optimizers.decayed(config.learning_rate, config.learning_rate_decay_steps)
    return optimizers.bounded(optax.adamw(learning_rate, weight_decay=config.weight_decay), config.max_gradient_norm)


def core_of_loss(loss: Loss, network: ModelNetwork, config: PlanningConfig, observation: Tree) -> LearnerCore[State]:
    """Returns the core of an agent that plans, with its own loss."""
    return single_loss_core(
        loss,
        lambda key: network.init(key, observation),
        make_optimizer(config),
        target_update=TargetUpdate(config.target_period),
    )


def weighed(each: Array, weight: Array, roots: Array) -> Array:
    """Returns the mean `[]` of the roots' losses `[R * B]`, weighted by their sequences' importance weights `[B]`."""
    return jnp.mean(jnp.broadcast_to(weight, roots.shape).reshape(-1) * each)


def value_errors(batch: Sequence, roots: Array, targets: Array) -> Array:
    """Returns the errors `[B]` of sequences: the mean over roots `[R, B]` of |nu - z| (Schrittwieser et al. 2020,
    appendix G).

    nu is the value from the actor's search at the root, and z `[R * B]` its target.
    """
    nu = take(batch.extras.value, roots)
    return lax.stop_gradient(jnp.mean(jnp.abs(nu - targets).reshape(roots.shape), axis=0))


def draw_roots(key: Array, batch: Sequence, config: PlanningConfig) -> Array:
    """Returns the steps `[R, B]` of sampled roots in a batch's sequences, see `losses.root_weights`."""
    weights = losses.root_weights(batch.mask, batch.discount, config.replay.length)
    keys = jax.random.split(key, batch.mask.shape[1])
    shape = (config.roots,)
    return jax.vmap(lambda key, w: jax.random.categorical(key, jnp.log(w), shape=shape), (0, 1), 1)(keys, weights)


def value_targets(network: ModelNetwork, config: PlanningConfig, target_params: Params, batch: Sequence) -> Array:
    """Returns the value targets z `[T, B]`, which bootstrap from the target network; see `losses.value_targets`."""
    flat = merge_axes(batch.observation)
    logits = network.predict(target_params, network.represent(target_params, flat)).value
    v = lax.stop_gradient(config.support.mean(logits).reshape(batch.reward.shape))
    discount = losses.signed_discounts(batch.discount, batch.observation)
    own = own_steps(batch, config)
    return losses.value_targets(batch.reward[1:], discount, v[1:], batch.mask, config.n_step, own, v[:-1])


def targets_at(roots: Array, batch: Sequence, z: Array, unroll_steps: int) -> losses.Targets:
    """Returns the targets at roots `[R, B]` and the K steps after them; see `losses.targets_at`."""
    policy, r_t = batch.extras.policy, batch.reward[1:]
    return losses.targets_at(roots, policy, z, r_t, batch.discount, batch.mask, unroll_steps)


class Unrolled(NamedTuple):
    """The model's predictions at N roots and K steps after them."""

    states: Tree  # [K + 1, N, ...]
    logits: Array  # [K + 1, N, A] of the policy
    value: Array  # [K + 1, N, S] logits
    reward: Array  # [K, N, S] logits of the reward of each step, or of the value prefix after it


def unroll(network: ModelNetwork, params: Params, observation: Tree, actions: Array) -> Unrolled:
    """Unrolls the model by actions `[K, N]` from observations `[N, ...]`."""

    def step(state: Tree, action: Array) -> tuple[Tree, tuple[Array, Tree]]:
        # The gradient to earlier steps is halved at each step (Schrittwieser et al. 2020, appendix G).
        halved: Any = optax.scale_gradient(state, 0.5)
        reward, state = network.dynamics(params, halved, action)
        return state, (reward, state)

    root = network.represent(params, observation)
    _, (reward, states) = lax.scan(step, root, actions)
    states = jax.tree.map(lambda x, later: jnp.concatenate([x[None], later]), root, states)
    predicted = network.predict(params, merge_axes(states))
    logits, value = (x.reshape(len(actions) + 1, actions.shape[1], -1) for x in predicted)
    return Unrolled(states, logits, value, reward)


def actions_after(key: Array, roots: Array, batch: Sequence, unroll_steps: int, num_actions: int) -> Array:
    """Returns the actions `[K, N]` of the K steps from roots `[R, B]`.

    After an episode's end, actions are random: every action leads from the absorbing state to itself.
    """
    action, mask = (jnp.pad(x, ((0, unroll_steps), (0, 0))) for x in (batch.action.astype(jnp.int32), batch.mask))
    chosen = jnp.where(mask > 0, action, jax.random.randint(key, action.shape, 0, num_actions))
    return take(chosen, roots + jnp.arange(unroll_steps)[:, None, None])


def make_core(network: ModelNetwork, config: MuZeroConfig, observation: Tree) -> LearnerCore[State]:
    """Returns MuZero's learner core."""
    support, plan = config.support, planner(network, config)

    def loss(
        params: Params, target_params: Params, batch: Sequence, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        root_key, action_key, search_key = jax.random.split(key, 3)
        z = value_targets(network, config, target_params, batch)
        roots = draw_roots(root_key, batch, config)
        targets = targets_at(roots, batch, z, config.unroll_steps)
        seen = jax.tree.map(lambda x: take(x, roots), batch.observation)
        fresh = round(config.reanalyze * roots.size)
        if fresh:
            keys = jax.random.split(search_key, fresh)
            again = plan(target_params, keys, jax.tree.map(lambda x: x[:fresh], seen), True)
            policy = jnp.asarray(targets.policy).at[0, :fresh].set(lax.stop_gradient(again.policy))
            targets = targets._replace(policy=policy)
        if config.value_prefix:
            targets = targets._replace(reward=losses.value_prefixes(targets.reward))

        actions = actions_after(action_key, roots, batch, config.unroll_steps, targets.policy.shape[-1])
        model = unroll(network, params, seen, actions)
        costs = losses.unrolled_costs(model.logits, model.value, model.reward, targets, support)
        each = costs.policy + config.value_coef * costs.value + config.reward_coef * costs.reward
        metrics = {
            "policy_loss": jnp.mean(costs.policy),
            "value_loss": jnp.mean(costs.value),
            "reward_loss": jnp.mean(costs.reward),
            "value_mean": jnp.mean(support.mean(model.value[0])),
            "target_mean": jnp.mean(targets.value[0]),
            "target_abs_max": jnp.max(jnp.abs(z * batch.mask)),
            "policy_entropy": -jnp.mean(jnp.sum(jax.scipy.special.xlogy(targets.policy[0], targets.policy[0]), -1)),
            "reanalyzed_share": jnp.float32(fresh / roots.size),
        }
        if config.consistency_coef:
            apart = consistency_costs(network, params, model.states, batch.observation, roots, batch.mask)
            each = each + config.consistency_coef * apart
            metrics["consistency_loss"] = jnp.mean(apart)
        return weighed(each, weight, roots), LossOutput(metrics, value_errors(batch, roots, targets.value[0]))

    return core_of_loss(loss, network, config, observation)


def consistency_costs(
    network: ModelNetwork, params: Params, states: Tree, observation: Tree, roots: Array, mask: Array
) -> Array:
    """Returns the consistency loss `[N]` (Ye et al. 2021, eq. 3).

    It is the mean, over unrolled steps, of the negative cosine similarity between predictions from the model's states
    and the projected states of the actual observations. No gradient flows through the latter.

    Args:
        network: the model's networks.
        params: the networks' parameters.
        states: `[K + 1, N, ...]` the model's states.
        observation: `[T + 1, B, ...]` observations of the sequences.
        roots: `[R, B]` steps of the roots.
        mask: `[T, B]` 1 where there is a step.
    """
    last, unrolled = len(mask), len(jax.tree.leaves(states)[0]) - 1
    steps = (roots + jnp.arange(1, unrolled + 1)[:, None, None]).reshape(-1, roots.shape[1])  # [K * R, B]
    seen = jax.tree.map(lambda x: take(x, jnp.minimum(steps, last)), observation)
    there = take(jnp.pad(mask, ((0, unrolled + 1), (0, 0))), steps)
    target = network.project(params, network.represent(params, seen), False)
    later = merge_axes(jax.tree.map(lambda x: x[1:], states))
    predicted = network.project(params, later, True)
    similar = optax.cosine_similarity(predicted, lax.stop_gradient(target), epsilon=1e-6)
    return -jnp.mean((there * similar).reshape(unrolled, -1), axis=0)
