"""MuZero's learning: the model is unrolled from roots, which are steps sampled from the replay's sequences."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from acme_ext.agents.muzero import losses
from acme_ext.agents.muzero.acting import own_steps, planner
from acme_ext.agents.muzero.config import MuZeroConfig, PlanningConfig
from acme_ext.learning import optimizers
from acme_ext.learning.core import LearnerCore, Loss, LossOutput, State, TargetUpdate, single_loss_core
from acme_ext.networks.models import ModelNetwork
from acme_ext.ops.distributional import Support
from acme_ext.types import Array, Params, Sequence, Tree


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


def take(x: Array, steps: Array) -> Array:
    """Returns `x[steps[r, b], b]`, `[R * B, ...]`, for x `[T, B, ...]` and steps `[R, B]`."""
    found = x[steps, jnp.arange(steps.shape[1])]
    return found.reshape(-1, *x.shape[2:])


def values_of(network: ModelNetwork, support: Support, params: Params, observation: Tree) -> Array:
    """Returns the values `[T + 1, B]` of observations `[T + 1, B, ...]`."""
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), observation)
    logits = network.predict(params, network.represent(params, flat)).value
    return support.mean(logits).reshape(jax.tree.leaves(observation)[0].shape[:2])


def make_core(network: ModelNetwork, config: MuZeroConfig, observation: Tree) -> LearnerCore[State]:
    """Returns MuZero's learner core."""
    support, plan, unroll = config.support, planner(network, config), config.unroll_steps

    def loss(
        params: Params, target_params: Params, batch: Sequence, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        root_key, action_key, search_key = jax.random.split(key, 3)
        r_t, mask = batch.reward[1:], batch.mask
        discount = losses.signed_discounts(batch.discount, batch.observation)
        v_t = lax.stop_gradient(values_of(network, support, target_params, batch.observation))
        z = losses.value_targets(r_t, discount, v_t[1:], mask, config.n_step, own_steps(batch, config), v_t[:-1])

        roots = draw_roots(root_key, batch, config)
        targets = losses.targets_at(roots, batch.extras.policy, z, r_t, batch.discount, mask, unroll)
        seen = jax.tree.map(lambda x: take(x, roots), batch.observation)
        fresh = round(config.reanalyze * roots.size)
        if fresh:
            keys = jax.random.split(search_key, fresh)
            again = plan(target_params, keys, jax.tree.map(lambda x: x[:fresh], seen), True)
            policy = jnp.asarray(targets.policy).at[0, :fresh].set(lax.stop_gradient(again.policy))
            targets = targets._replace(policy=policy)

        # After an episode's end, actions are random: every action leads from the absorbing state to itself.
        count = targets.policy.shape[-1]
        following = roots + jnp.arange(unroll)[:, None, None]
        known = jnp.pad(batch.action.astype(jnp.int32), ((0, unroll), (0, 0)))
        there = jnp.pad(mask, ((0, unroll), (0, 0))) > 0
        chosen = jnp.where(there, known, jax.random.randint(action_key, known.shape, 0, count))
        actions = jax.vmap(lambda steps: take(chosen, steps))(following)  # [K, N]

        def step(state: Tree, action: Array) -> tuple[Tree, tuple[Array, Tree]]:
            # The gradient to earlier steps is halved at each step (Schrittwieser et al. 2020, appendix G).
            halved: Any = optax.scale_gradient(state, 0.5)
            reward, state = network.dynamics(params, halved, action)
            return state, (reward, state)

        root = network.represent(params, seen)
        _, (rewards, states) = lax.scan(step, root, actions)
        states = jax.tree.map(lambda x, later: jnp.concatenate([x[None], later]), root, states)  # [K + 1, N, ...]
        said = network.predict(params, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), states))
        logits, values = (x.reshape(unroll + 1, roots.size, -1) for x in said)
        rewards = jnp.pad(rewards, ((1, 0), (0, 0), (0, 0)))  # none at the root
        if config.value_prefix:
            targets = targets._replace(reward=losses.value_prefixes(targets.reward))
        costs = losses.unrolled_costs(logits, values, rewards, targets, support)
        each = costs.policy + config.value_coef * costs.value + config.reward_coef * costs.reward

        metrics = {
            "policy_loss": jnp.mean(costs.policy),
            "value_loss": jnp.mean(costs.value),
            "reward_loss": jnp.mean(costs.reward),
            "value_mean": jnp.mean(support.mean(values[0])),
            "target_mean": jnp.mean(targets.value[0]),
            "target_abs_max": jnp.max(jnp.abs(z * mask)),
            "policy_entropy": -jnp.mean(jnp.sum(jax.scipy.special.xlogy(targets.policy[0], targets.policy[0]), -1)),
            "reanalyzed_share": jnp.float32(fresh / roots.size),
        }
        if config.consistency_coef:
            later = jnp.pad(mask, ((0, unroll + 1), (0, 0)))
            apart = consistency_costs(network, params, states, batch.observation, roots, later)
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
        mask: `[T + K + 1, B]` 1 where there is a step.
    """
    last, unroll = len(jax.tree.leaves(observation)[0]) - 1, len(jax.tree.leaves(states)[0]) - 1
    steps = (roots + jnp.arange(1, unroll + 1)[:, None, None]).reshape(-1, roots.shape[1])  # [K * R, B]
    seen = jax.tree.map(lambda x: take(x, jnp.minimum(steps, last)), observation)
    target = network.project(params, network.represent(params, seen), False)
    later = jax.tree.map(lambda x: x[1:].reshape(-1, *x.shape[2:]), states)
    predicted = network.project(params, later, True)
    similar = optax.cosine_similarity(predicted, lax.stop_gradient(target), epsilon=1e-6)
    return -jnp.mean((take(mask, steps) * similar).reshape(unroll, -1), axis=0)
