"""How MuZero acts: by a tree search with its learned model."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.policy import Context, Policy
from acme_ext.agents.muzero.config import MuZeroConfig, PlanningConfig
from acme_ext.agents.muzero.losses import signed_discounts, value_targets
from acme_ext.networks.models import ModelNetwork, Recalling
from acme_ext.ops import masking, multistep, search
from acme_ext.ops.search import Root, Searched, Step
from acme_ext.types import Array, Params, Sequence, Tree
from acme_ext.utils.arrays import numpy_of


class Planned(NamedTuple):
    """The extras of a policy that plans, stored with every action."""

    policy: Array  # [B, A] float32, the search's improved policy
    value: Array  # [B] float32, nu: the root's value after the search, for the player to move
    own: Array  # [B] float32, 0 if it is one of an episode's `sampled_moves` and not the search's best action, else 1


class Shown(NamedTuple):
    """The extras in evaluation, for inspecting the results of a search."""

    policy: Array  # [B, A] as in `Planned`
    value: Array  # [B] as in `Planned`
    visits: Array  # [B, A] fractions of the visits
    prior: Array  # [B, A] the policy at the root before the search
    action_values: Array  # [B, A] values of the root's actions; only valid for actions that were visited
    nodes: Array  # [B, N, 4] nodes of the tree, see `search.nodes_of`


Plan = Callable[[Params, Array, Tree, bool], Searched]
"""`(params, keys [B], observation [B, ...], explore) -> Searched`."""


def example_extras(num_actions: int) -> Planned:
    """Returns example extras of one environment's step, for shapes and data types."""
    return Planned(np.zeros(num_actions, np.float32), np.zeros((), np.float32), np.zeros((), np.float32))


def make_policy(network: ModelNetwork, config: MuZeroConfig, *, evaluation: bool) -> Policy:
    """Returns the policy that searches with the model; in evaluation without noise, and with the best action."""
    return policy_of(planner(network, config), config, evaluation=evaluation)


class Summing(NamedTuple):
    """The state of a search node if the model predicts value prefixes: the model's state and the last prefix."""

    hidden: Array  # [B, ...] see `Recalling`
    memory: Tree  # [B, H] see `Recalling`
    prefix: Array  # [B] predicted sum of the rewards since the last reset
    steps: Array  # [B] int32, number of steps since the last reset


def rewards_of(network: ModelNetwork, config: MuZeroConfig) -> Callable[[Params, Tree, Array], tuple[Array, Tree]]:
    """Returns the model's step in a search, `(params, state, action [B]) -> (reward [B], state)`.

    With value prefixes, the reward is the difference between two successive ones. The sum is reset after `unroll_steps`
    steps (Ye et al. 2021, section 4.2).
    """
    support = config.support

    def step(params: Params, state: Tree, action: Array) -> tuple[Array, Tree]:
        if not config.value_prefix:
            reward, state = network.dynamics(params, state, action)
            return support.mean(reward), state
        anew = state.steps == config.unroll_steps
        memory = jax.tree.map(lambda x: jnp.where(anew[:, None], 0.0, x), state.memory)
        logits, after = network.dynamics(params, Recalling(state.hidden, memory), action)
        prefix = support.mean(logits)
        reward = prefix - jnp.where(anew, 0.0, state.prefix)
        return reward, Summing(after.hidden, after.memory, prefix, state.steps % config.unroll_steps + 1)

    return step


def planner(network: ModelNetwork, config: MuZeroConfig) -> Plan:
    """Returns the search with the learned model."""
    support, dynamics = config.support, rewards_of(network, config)

    def plan(params: Params, keys: Array, observation: Tree, explore: bool) -> Searched:
        # With two players, they alternate. The model predicts no end of a game: values after it are trained to be 0.
        alternate = masking.player_of(observation) is not None
        discount = -config.discount if alternate else config.discount

        def model(action: Array, state: Tree) -> tuple[Step, Tree]:
            reward, state = dynamics(params, state, action)
            logits, value = network.predict(params, state)
            return Step(reward, jnp.full_like(reward, discount), logits, support.mean(value)), state

        state = network.represent(params, observation)
        logits, value = network.predict(params, state)
        if config.value_prefix:
            nothing = jnp.zeros(len(logits))
            state = Summing(state.hidden, state.memory, nothing, nothing.astype(jnp.int32))
        root = Root(logits, support.mean(value), state)
        return search.search(config.search, keys, root, model, masking.legal_actions(observation), explore=explore)

    return plan


def policy_of(plan: Plan, config: PlanningConfig, *, evaluation: bool) -> Policy:
    """Returns the policy that acts by a search; its extras are `Planned`, or `Shown` in evaluation.

    If the first moves of an episode are sampled, the policy's state is the number of moves so far.
    """
    opening = config.sampled_moves > 0 and not evaluation
    if opening:
        choose: Choose = functools.partial(sampled_opening, config)
    elif config.search.gumbel or evaluation:
        choose = greedy
    else:
        choose = functools.partial(by_temperature, config)

    def apply(params: Params, context: Context, observation: Tree, moves: Tree):
        keys = jax.vmap(lambda key: jax.random.split(key))(context.key)
        found = plan(params, keys[:, 0], observation, not evaluation)
        action, own = choose(keys[:, 1], found, context, observation, moves)
        if evaluation:
            shown = found.policy, found.value, found.visits, found.prior, found.action_values
            return action, moves, Shown(*shown, search.nodes_of(found.tree))
        return action, moves + 1 if opening else moves, Planned(found.policy, found.value, own)

    policy = Policy(apply, threaded=True)  # makes searches 3 times as fast, see `compiling.jit`
    return policy._replace(init_state=lambda batch: np.zeros(batch, np.int32)) if opening else policy


Choose = Callable[[Array, Searched, Context, Tree, Tree], tuple[Array, Array]]
"""`(keys [B], search's result, context, observation, moves so far [B]) -> (actions [B], `Planned.own` [B])`."""


def greedy(keys: Array, found: Searched, context: Context, observation: Tree, moves: Tree) -> tuple[Array, Array]:
    """Chooses the search's best actions."""
    return found.action, jnp.ones_like(found.value)


def by_temperature(
    config: PlanningConfig, keys: Array, found: Searched, context: Context, observation: Tree, moves: Tree
) -> tuple[Array, Array]:
    """Samples actions by the visits, with a temperature that falls (Schrittwieser et al. 2020, appendix D)."""
    action = search.sample_visits(keys, found.visits, temperature(context.steps, config))
    return action, jnp.ones_like(found.value)


def sampled_opening(
    config: PlanningConfig, keys: Array, found: Searched, context: Context, observation: Tree, moves: Tree
) -> tuple[Array, Array]:
    """Samples the first moves of an episode by the visits, a share of them uniformly; later ones are the search's."""
    legal, share = masking.legal_actions(observation), config.random_share
    any_of = jnp.ones_like(found.visits) if legal is None else legal.astype(jnp.float32)
    chances = (1 - share) * found.visits + share * any_of / jnp.sum(any_of, axis=-1, keepdims=True)
    sampled = search.sample_visits(keys, chances, jnp.float32(1))
    action = jnp.where(moves < config.sampled_moves, sampled, found.action)
    return action, (action == found.action).astype(jnp.float32)


def temperature(steps: Array, config: PlanningConfig) -> Array:
    """Returns the temperature `[]` for sampling actions by visits, after `steps` environment steps of the run."""
    share = steps / config.temperature_steps
    return jnp.where(share < 0.5, 1.0, jnp.where(share < 0.75, 0.5, 0.25)).astype(jnp.float32)


def own_steps(batch: Sequence, config: PlanningConfig) -> Array | None:
    """Returns `Planned.own` `[T, B]`, or None if `config.cut_sampled` is false."""
    return batch.extras.own if config.cut_sampled else None


def first_error(batch: Sequence, config: PlanningConfig) -> Array:
    """Returns the errors `[M]` for the initial priorities of new sequences (Schrittwieser et al. 2020, appendix G).

    The error is the mean |nu - z| over a sequence's steps, where z bootstraps from the searches' values.

    The value of the last timestep is not known yet. Unless the episode terminated, the value of the timestep before is
    used instead.
    """
    nu, mask = batch.extras.value, batch.mask
    xp = numpy_of(nu, mask)
    # The value of the timestep before is that of the other player if the players alternate.
    sign = signed_discounts(xp.ones_like(mask), batch.observation)
    v_t = xp.where(multistep.continues_of(mask), xp.concatenate([nu[1:], nu[-1:]]), sign * nu)
    discount = signed_discounts(batch.discount, batch.observation)
    z = value_targets(batch.reward[1:], discount, v_t, mask, config.n_step, own_steps(batch, config), nu)
    return (mask * abs(nu - z)).sum(axis=0) / mask.sum(axis=0).clip(1)
