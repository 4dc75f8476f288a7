"""Batched Monte Carlo tree search with a model, as in MuZero (Schrittwieser et al. 2020) and Gumbel MuZero (Danihelka
et al. 2022), using mctx.

Every row has its own random key, so its result does not depend on the other rows.

With two players, all values and rewards are from the perspective of the player to move. A model's discount is negative
if the other player moves next, so values change their sign when they are backed up the tree.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.config.fields import Checked
from acme_ext.config.types import NonNegative, Positive, PositiveInt, Share
from acme_ext.errors import UsageError
from acme_ext.ops import masking
from acme_ext.types import Array, Tree
from acme_ext.utils import install


@dataclasses.dataclass(frozen=True)
class SearchConfig(Checked):
    """Settings of a search. Where a field names no source, it is ours."""

    simulations: PositiveInt = 16  # visits of the tree in a search
    gumbel: bool = True  # Gumbel MuZero (Danihelka et al. 2022); otherwise MuZero
    max_depth: PositiveInt | None = None  # of the tree; None: as deep as there are simulations

    # Gumbel MuZero
    considered_actions: PositiveInt = 16  # at the root, at most; m of Danihelka et al. 2022, algorithm 1
    value_visits: NonNegative = 50.0  # c_visit of Danihelka et al. 2022, eq. 8
    # c_scale of Danihelka et al. 2022, eq. 8: 1 for board games there, and 0.1 for Atari
    value_scale: NonNegative = 0.1
    # A node's action values are divided by their range (largest minus least), or by this if the range is smaller; 0.01
    # in the code of Ye et al. 2021
    value_range: Positive = 0.01

    # Without Gumbel
    dirichlet_alpha: Positive = 0.25  # without Gumbel: of the noise at the root; Schrittwieser et al. 2020, appendix C
    dirichlet_share: Share = 0.25  # without Gumbel: of the noise in the prior there; Schrittwieser et al. 2020
    pb_c_init: NonNegative = 1.25  # without Gumbel: c_1 of Schrittwieser et al. 2020, appendix B
    pb_c_base: Positive = 19_652.0  # without Gumbel: c_2 of Schrittwieser et al. 2020, appendix B


class Root(NamedTuple):
    """The root of a search."""

    logits: Array  # [B, A] logits of the prior policy
    value: Array  # [B] value for the player to move
    state: Tree  # [B, ...] the model's state


class Step(NamedTuple):
    """A model's prediction for an action."""

    reward: Array  # [B] reward of the player who took it
    discount: Array  # [B] discount of the next value: negative if the other player moves next, 0 if the game is over
    logits: Array  # [B, A] logits of the prior policy in the next state
    value: Array  # [B] value of the next state, for the player to move there


Model = Callable[[Array, Tree], tuple[Step, Tree]]
"""`(action [B], state [B, ...]) -> (Step, state)`."""


class Searched(NamedTuple):
    """The result of a search."""

    action: Array  # [B] int32, the best action according to the search
    policy: Array  # [B, A] the improved policy, the network's target; 0 for illegal actions
    value: Array  # [B] the root's value after the search
    visits: Array  # [B, A] fractions of the visits
    prior: Array  # [B, A] the policy at the root before the search, including noise
    action_values: Array  # [B, A] values of the root's actions; without meaning for actions that were not visited
    tree: Any  # mctx's tree [B, ...]


def search(
    config: SearchConfig, keys: Array, root: Root, model: Model, legal: Array | None = None, *, explore: bool = True
) -> Searched:
    """Searches from every row of a batch.

    Args:
        config: settings.
        keys: `[B]` random keys.
        root: the root.
        model: predicts the results of actions.
        legal: `[B, A]` legal actions at the root; None for all. Deeper in the tree, the model must mark illegal actions
            with logits of `masking.ILLEGAL`.
        explore: whether to add noise at the root (Gumbel or Dirichlet); without it, the search is deterministic.

    Raises:
        UsageError: mctx is not installed.
    """
    legal = jnp.ones(root.logits.shape, bool) if legal is None else legal
    root = root._replace(logits=masking.masked(root.logits, legal))
    return (gumbel_search if config.gumbel else puct_search)(config, keys, root, model, legal, explore=explore)


def gumbel_search(
    config: SearchConfig, keys: Array, root: Root, model: Model, legal: Array, *, explore: bool
) -> Searched:
    """Does the search of Gumbel MuZero (Danihelka et al. 2022, algorithm 2); see `search`."""
    mctx = load_mctx()
    gumbel = jax.vmap(lambda key: jax.random.gumbel(key, root.logits.shape[1:]))(keys) * (1.0 if explore else 0.0)
    completed = functools.partial(  # sigma(q) of a node's actions, including those that were not visited
        mctx.qtransform_completed_by_mix_value,
        value_scale=config.value_scale,
        maxvisit_init=config.value_visits,
        epsilon=config.value_range,
    )
    halving = functools.partial(
        mctx.gumbel_muzero_root_action_selection,
        num_simulations=config.simulations,
        max_num_considered_actions=config.considered_actions,
        qtransform=completed,
    )
    below = functools.partial(mctx.gumbel_muzero_interior_action_selection, qtransform=completed)
    tree = _tree(config, root, model, legal, halving, below, mctx.GumbelMuZeroExtraData(root_gumbel=gumbel))
    # Of the most visited actions, take the one with the largest gumbel + logits + sigma(q). The policy is computed in
    # the same way without the noise (eq. 11).
    improved = root.logits + jax.vmap(completed, (0, None))(tree, tree.ROOT_INDEX)
    visits = tree.summary().visit_counts
    most = legal & (visits == jnp.max(visits, axis=-1, keepdims=True))
    action = jnp.argmax(masking.masked(gumbel + improved, most), axis=-1)
    return _searched(tree, root, action, jax.nn.softmax(masking.masked(improved, legal)))


def puct_search(
    config: SearchConfig, keys: Array, root: Root, model: Model, legal: Array, *, explore: bool
) -> Searched:
    """Does the search of MuZero (Schrittwieser et al. 2020, appendix B); see `search`.

    Without `explore`, ties are broken alike in all rows.
    """
    mctx = load_mctx()
    if explore:
        root = root._replace(logits=masking.masked(_noisy(config, keys, root.logits, legal), legal))
    else:
        keys = jnp.broadcast_to(jax.random.key(0), keys.shape)

    def select(key: Array, tree: Any, node: Array, depth: Any) -> Array:
        del key  # it depends on the batch size
        # A simulation passes a node at most once, and the root's visits count the simulations.
        own = jax.random.fold_in(jax.random.fold_in(tree.extra_data, tree.node_visits[tree.ROOT_INDEX]), node)
        scaled = functools.partial(mctx.qtransform_by_parent_and_siblings, epsilon=config.value_range)
        bound = {"pb_c_init": config.pb_c_init, "pb_c_base": config.pb_c_base}
        return mctx.muzero_action_selection(own, tree, node, depth, qtransform=scaled, **bound)

    tree = _tree(config, root, model, legal, functools.partial(select, depth=0), select, keys)
    visits = tree.summary().visit_probs
    return _searched(tree, root, jnp.argmax(visits, axis=-1), visits)


def _tree(
    config: SearchConfig, root: Root, model: Model, legal: Array, at_root: Callable, below: Callable, extra_data: Any
) -> Any:
    """Returns the tree of a search, with functions that select an action at the root and below it.

    `extra_data` `[B, ...]` is put into the tree for these functions.
    """
    mctx = load_mctx()

    def recurrent(params: Any, key: Array, action: Array, state: Tree) -> tuple[Any, Tree]:
        del params, key
        step, state = model(action, state)
        predicted = {"reward": step.reward, "discount": step.discount, "prior_logits": step.logits, "value": step.value}
        return mctx.RecurrentFnOutput(**predicted), state

    return mctx.search(
        (),
        jax.random.key(0),  # not used: all randomness comes from the rows' keys
        root=mctx.RootFnOutput(prior_logits=root.logits, value=root.value, embedding=root.state),
        recurrent_fn=recurrent,
        root_action_selection_fn=at_root,
        interior_action_selection_fn=below,
        num_simulations=config.simulations,
        max_depth=config.max_depth,
        invalid_actions=~legal,
        extra_data=extra_data,
    )


def _searched(tree: Any, root: Root, action: Array, policy: Array) -> Searched:
    summary, prior = tree.summary(), jax.nn.softmax(root.logits)
    action = action.astype(jnp.int32)
    return Searched(action, policy, summary.value, summary.visit_probs, prior, summary.qvalues, tree)


def _noisy(config: SearchConfig, keys: Array, logits: Array, legal: Array) -> Array:
    """Returns the root's logits with Dirichlet noise over the legal actions mixed into their probabilities."""
    alpha = jnp.full(logits.shape[-1], config.dirichlet_alpha)
    drawn = jax.vmap(lambda key: jax.random.loggamma(key, alpha))(keys)
    noise = jax.nn.softmax(masking.masked(drawn, legal))  # of gamma variables: a Dirichlet distribution
    share = config.dirichlet_share
    probs = (1 - share) * jax.nn.softmax(logits) + share * noise
    return jnp.log(jnp.maximum(probs, jnp.finfo(jnp.float32).tiny))


def nodes_of(tree: Any) -> Array:
    """Returns the nodes of search trees, float32 `[B, N, 4]`.

    The four numbers of a node are: its parent's index, -1 for the root; the action that leads to it; its visits, 0 if
    the node is unused; and the value of that action for the player who took it, or the root's value.
    """
    row, above, action = jnp.arange(len(tree.parents))[:, None], jnp.maximum(tree.parents, 0), tree.action_from_parent
    taken = row, above, jnp.maximum(action, 0)
    value = tree.children_rewards[taken] + tree.children_discounts[taken] * tree.node_values
    value = jnp.where(tree.parents < 0, tree.node_values, value)
    return jnp.stack([tree.parents, action, tree.node_visits, value], axis=-1).astype(jnp.float32)


def sample_visits(keys: Array, visits: Array, temperature: Array) -> Array:
    """Samples actions `[B]` by a search's visits, `pi(a) ~ N(a)**(1 / T)` (Schrittwieser et al. 2020, appendix D).

    Args:
        keys: `[B]` random keys.
        visits: `[B, A]` fractions of the visits.
        temperature: `[B]` or `[]`; 0 takes the most visited action.
    """
    temperature = jnp.broadcast_to(temperature, visits.shape[:1])
    logits = jnp.where(visits > 0, jnp.log(jnp.maximum(visits, 1e-9)), -jnp.inf)
    sampled = jax.vmap(jax.random.categorical)(keys, logits / jnp.maximum(temperature, 1e-3)[:, None])
    return jnp.where(temperature > 0, sampled, jnp.argmax(visits, axis=-1)).astype(jnp.int32)


def load_mctx() -> Any:
    """Returns the module mctx; raises UsageError if it is not installed."""
    try:
        import mctx
    except ModuleNotFoundError as error:
        raise UsageError(f"a search needs {error.name}, not installed here: {install.command('search')}") from None
    return mctx
