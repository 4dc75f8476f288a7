"""Monte Carlo tree search over a model, batched: MuZero's (Schrittwieser et al. 2020) and Gumbel MuZero's (Danihelka et
al. 2022), by mctx.

Every row is searched with a random key of its own, so that what comes of it does not depend on the other rows.

With two players, all values and rewards are those of the player who moves: what a model gives as the discount is
negative where the other player moves next, and a value that comes back up the tree changes its sign with it.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.errors import UsageError
from acme_ext.ops import masking
from acme_ext.types import Array, Tree
from acme_ext.utils import checks, install


@dataclasses.dataclass(frozen=True)
class SearchConfig:
    """Settings of a search. Where a field names no source, it is ours."""

    simulations: int = 16  # visits of the tree in a search
    gumbel: bool = True  # Gumbel MuZero (Danihelka et al. 2022); otherwise MuZero
    max_depth: int | None = None  # of the tree; None: as deep as there are simulations

    # Gumbel MuZero
    considered_actions: int = 16  # at the root, at most; m of Danihelka et al. 2022, algorithm 1
    # c_visit and c_scale of Danihelka et al. 2022, eq. 8; the second is 1 for board games there, and 0.1 for Atari
    value_visits: float = 50.0
    value_scale: float = 0.1
    # The least difference of a node's largest and least value that is stretched to 1: below it, differences are small;
    # 0.01 in the code of Ye et al. 2021
    value_range: float = 0.01

    # MuZero; Schrittwieser et al. 2020, appendix B and C
    dirichlet_alpha: float = 0.25  # of the noise at the root
    dirichlet_share: float = 0.25  # of the noise in the root's prior
    pb_c_init: float = 1.25  # c_1
    pb_c_base: float = 19_652.0  # c_2

    def __post_init__(self):
        checks.at_least_one(self, "simulations", "considered_actions")
        checks.positive(self, "max_depth", "value_range", "dirichlet_alpha", "pb_c_base")
        checks.not_negative(self, "value_visits", "value_scale", "pb_c_init")
        checks.share(self, "dirichlet_share")


class Root(NamedTuple):
    """Where a search begins."""

    logits: Array  # [B, A] of the prior policy
    value: Array  # [B] of the player who moves
    state: Tree  # [B, ...] of the model


class Step(NamedTuple):
    """What a model says of an action."""

    reward: Array  # [B] of the player who took it
    discount: Array  # [B] of the value after it: negative if the other player moves next, 0 if the game is over
    logits: Array  # [B, A] of the prior policy after it
    value: Array  # [B] after it, of the player who moves then


Model = Callable[[Array, Tree], tuple[Step, Tree]]
"""`(action [B], state [B, ...]) -> (Step, state)`."""


class Searched(NamedTuple):
    """What came of a search."""

    action: Array  # [B] int32, the best one by the search
    policy: Array  # [B, A] the improved policy, for the network to learn; 0 where an action is not legal
    value: Array  # [B] of the root, after the search
    visits: Array  # [B, A] share of the visits
    tree: Any  # mctx's, of rows [B, 1]


def search(
    config: SearchConfig, keys: Array, root: Root, model: Model, legal: Array | None = None, *, explore: bool = True
) -> Searched:
    """Searches from every row of a batch.

    Args:
        config: settings.
        keys: `[B]` random keys.
        root: where it begins.
        model: of what actions do.
        legal: `[B, A]` which actions may be taken at the root; None for all. Deeper in the tree that is the model's to
            say, by logits of `masking.ILLEGAL`.
        explore: whether there is noise at the root (Gumbel's or Dirichlet's); a search without is the same each time.

    Raises:
        UsageError: mctx is not installed.
    """
    mctx = load_mctx()
    legal = jnp.ones(root.logits.shape, bool) if legal is None else legal

    def one(key: Array, root: Root, legal: Array) -> Searched:
        """Searches from one row, a batch of one to mctx."""
        root, legal = jax.tree.map(lambda x: x[None], (root, legal))

        def recurrent(params: Any, key: Array, action: Array, state: Tree) -> tuple[Any, Tree]:
            del params, key
            step, state = model(action, state)
            said = {"reward": step.reward, "discount": step.discount, "prior_logits": step.logits, "value": step.value}
            return mctx.RecurrentFnOutput(**said), state

        start = mctx.RootFnOutput(
            prior_logits=masking.masked(root.logits, legal), value=root.value, embedding=root.state
        )
        arguments = ((), key, start, recurrent, config.simulations, ~legal, config.max_depth)
        if config.gumbel:
            out = mctx.gumbel_muzero_policy(
                *arguments,
                qtransform=functools.partial(
                    mctx.qtransform_completed_by_mix_value,
                    value_scale=config.value_scale,
                    maxvisit_init=config.value_visits,
                    epsilon=config.value_range,
                ),
                max_num_considered_actions=config.considered_actions,
                gumbel_scale=1.0 if explore else 0.0,
            )
        else:
            out = mctx.muzero_policy(
                *arguments,
                qtransform=functools.partial(mctx.qtransform_by_parent_and_siblings, epsilon=config.value_range),
                dirichlet_fraction=config.dirichlet_share if explore else 0.0,
                dirichlet_alpha=config.dirichlet_alpha,
                pb_c_init=config.pb_c_init,
                pb_c_base=config.pb_c_base,
            )
        summary = out.search_tree.summary()
        visits = summary.visit_probs
        action = out.action if config.gumbel else jnp.argmax(visits, axis=-1)
        found = Searched(action, out.action_weights, summary.value, visits, out.search_tree)
        return jax.tree.map(lambda x: x[0], found._replace(tree=()))._replace(tree=out.search_tree)

    found = jax.vmap(one)(keys, root, legal)
    return found._replace(action=found.action.astype(jnp.int32))


def sample_visits(keys: Array, visits: Array, temperature: Array) -> Array:
    """Returns actions `[B]` by the visits of a search, `pi(a) ~ N(a)**(1 / T)` (Schrittwieser et al. 2020, appendix D).

    Args:
        keys: `[B]` random keys.
        visits: `[B, A]` share of the visits.
        temperature: `[B]` or `[]`; 0 takes the most visited.
    """
    temperature = jnp.broadcast_to(temperature, visits.shape[:1])
    logits = jnp.where(visits > 0, jnp.log(jnp.maximum(visits, 1e-9)), -jnp.inf)
    sampled = jax.vmap(jax.random.categorical)(keys, logits / jnp.maximum(temperature, 1e-3)[:, None])
    return jnp.where(temperature > 0, sampled, jnp.argmax(visits, axis=-1)).astype(jnp.int32)


def load_mctx() -> Any:
    """Returns the module mctx; raises UsageError where it is not installed."""
    try:
        import mctx
    except ModuleNotFoundError as error:
        raise UsageError(f"a search needs {error.name}, not installed here: {install.command('search')}") from None
    return mctx
