"""Multi-armed bandits as pure functions over batches of `[B]` independent bandits with K arms.

A step of a bandit is `arm = select(keys, state)`, then `state = update(state, arm, reward)`. If only some of the B
bandits take a step, `utils.trees.select` keeps the states of the others.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.errors import UsageError
from acme_ext.types import Array, Tree
from acme_ext.utils.arrays import numpy_of


class Bandit(NamedTuple):
    """A bandit algorithm."""

    init: Callable[[int], Tree]
    """`B -> state [B, ...]`: the initial state, as NumPy arrays."""

    select: Callable[[Array, Tree], Array]
    """`(keys [B], state) -> arms [B]`, int32."""

    update: Callable[[Tree, Array, Array], Tree]
    """`(state, arms [B], rewards [B]) -> state`: the state after playing the arms."""


class Counts(NamedTuple):
    """Play counts and total rewards of all arms."""

    plays: Array  # [B, K] float32
    total: Array  # [B, K] float32, sum of rewards


class Window(NamedTuple):
    """The newest plays."""

    arm: Array  # [B, W] int32, a ring buffer; -1 where it is still empty
    reward: Array  # [B, W] float32
    plays: Array  # [B] int32, total number of plays


class Weights(NamedTuple):
    """EXP3's weights, as logarithms; the largest is 0."""

    log: Array  # [B, K] float32


def epsilon_greedy(num_arms: int, epsilon: float) -> Bandit:
    """Returns an epsilon-greedy bandit.

    It plays a uniformly random arm with probability epsilon, and otherwise the arm with the largest mean reward, the
    first one in a tie. Arms that were not played yet come first.
    """
    _check_arms(num_arms)

    def select(keys: Array, state: Counts) -> Array:
        return _explore(keys, jnp.argmax(_means(state), axis=-1), epsilon, num_arms)

    return Bandit(_init_counts(num_arms), select, _count)


def ucb1(num_arms: int, scale: float = 2**0.5) -> Bandit:
    """Returns UCB1 (Auer et al. 2002a, figure 1), for rewards in [0, 1].

    It plays each arm once, and then argmax_j mean_j + scale * sqrt(ln n / n_j), where n is the number of all plays and
    n_j the number of plays of arm j. With the paper's scale, sqrt(2), the expected regret after n plays is at most
    8 sum_j ln n / Delta_j + (1 + pi**2 / 3) sum_j Delta_j (theorem 1).
    """
    _check_arms(num_arms)

    def select(keys: Array, state: Counts) -> Array:
        total = jnp.sum(state.plays, axis=-1, keepdims=True)
        bound = jnp.sqrt(jnp.log(jnp.maximum(total, 1)) / jnp.maximum(state.plays, 1))
        return jnp.argmax(_means(state) + scale * bound, axis=-1).astype(jnp.int32)

    return Bandit(_init_counts(num_arms), select, _count)


def sliding_window_ucb(num_arms: int, window: int, scale: float = 1.0, epsilon: float = 0.0) -> Bandit:
    """Returns the sliding-window UCB of Agent57's meta-controller (Badia et al. 2020b, section 3.2 and appendix D).

    It plays each arm once. Then it plays a uniformly random arm with probability epsilon, and otherwise argmax_j mean_j
    + scale * sqrt(1 / n_j). Both mean_j and n_j are over the newest `window` plays; an arm that is not among them comes
    first.
    """
    _check_arms(num_arms)
    if window < num_arms:  # an arm outside the window comes first, so that returns would never be compared
        raise UsageError(f"the bandit's window is {window}: it must hold at least a play of each of {num_arms} arms.")

    def init(batch: int) -> Window:
        return Window(
            np.full((batch, window), -1, np.int32), np.zeros((batch, window), np.float32), np.zeros(batch, np.int32)
        )

    def select(keys: Array, state: Window) -> Array:
        counts = in_window(state, num_arms)
        upper = _means(counts) + scale * jnp.sqrt(1 / jnp.maximum(counts.plays, 1))
        explored = _explore(keys, jnp.argmax(upper, axis=-1), epsilon, num_arms)
        return jnp.where(state.plays < num_arms, state.plays, explored)

    def update(state: Window, arm: Array, reward: Array) -> Window:
        rows, place = jnp.arange(len(state.plays)), state.plays % window
        return Window(
            jnp.asarray(state.arm).at[rows, place].set(arm),
            jnp.asarray(state.reward).at[rows, place].set(reward),
            state.plays + 1,
        )

    return Bandit(init, select, update)


def in_window(state: Window, num_arms: int) -> Counts:
    """Returns the counts of each arm in the newest plays; as NumPy arrays if the window has NumPy arrays."""
    xp: Any = numpy_of(state.arm)
    played = xp.asarray(state.arm[..., None] == xp.arange(num_arms), np.float32)  # [B, W, K]
    return Counts(played.sum(axis=-2), (played * state.reward[..., None]).sum(axis=-2))


def exp3(num_arms: int, gamma: float) -> Bandit:
    """Returns EXP3 (Auer et al. 2002b, figure 1), for adversarial rewards in [0, 1].

    p_j = (1 - gamma) w_j / sum w + gamma / K;   w_j <- w_j exp(gamma r / (p_j K)) for the arm that was played.

    With gamma = min(1, sqrt(K ln K / ((e - 1) n))) the expected regret against the best single arm after n plays is
    at most 2.63 sqrt(n K ln K) (corollary 3.2).
    """
    _check_arms(num_arms)
    if not 0 < gamma <= 1:
        raise UsageError(f"EXP3's gamma is {gamma}: it must lie in (0, 1].")

    def probabilities(state: Weights) -> Array:
        return (1 - gamma) * jax.nn.softmax(state.log) + gamma / num_arms

    def select(keys: Array, state: Weights) -> Array:
        return jax.vmap(jax.random.categorical)(keys, jnp.log(probabilities(state))).astype(jnp.int32)

    def update(state: Weights, arm: Array, reward: Array) -> Weights:
        rows = jnp.arange(len(arm))
        estimate = reward / probabilities(state)[rows, arm]
        log = jnp.asarray(state.log).at[rows, arm].add(gamma / num_arms * estimate)
        return Weights(log - jnp.max(log, axis=-1, keepdims=True))

    return Bandit(lambda batch: Weights(np.zeros((batch, num_arms), np.float32)), select, update)


def thompson(num_arms: int) -> Bandit:
    """Returns Thompson sampling for rewards of 0 or 1 (Agrawal and Goyal 2012, algorithm 1).

    It plays the arm with the largest sample from Beta(1 + successes, 1 + failures).
    """
    _check_arms(num_arms)

    def select(keys: Array, state: Counts) -> Array:
        draw = jax.vmap(jax.random.beta)(keys, 1 + state.total, 1 + state.plays - state.total)
        return jnp.argmax(draw, axis=-1).astype(jnp.int32)

    return Bandit(_init_counts(num_arms), select, _count)


def _init_counts(num_arms: int) -> Callable[[int], Counts]:
    return lambda batch: Counts(*(np.zeros((batch, num_arms), np.float32) for _ in range(2)))


def _count(state: Counts, arm: Array, reward: Array) -> Counts:
    rows = jnp.arange(len(arm))
    plays, total = map(jnp.asarray, state)
    return Counts(plays.at[rows, arm].add(1), total.at[rows, arm].add(reward))


def _means(counts: Counts) -> Array:
    """Returns the arms' mean rewards `[B, K]`; infinity for arms that were not played."""
    return jnp.where(counts.plays > 0, counts.total / jnp.maximum(counts.plays, 1), jnp.inf)


def _explore(keys: Array, best: Array, epsilon: float, num_arms: int) -> Array:
    def choose(key: Array, best: Array) -> Array:
        explore_key, arm_key = jax.random.split(key)
        arm = jax.random.randint(arm_key, (), 0, num_arms)
        return jnp.where(jax.random.uniform(explore_key) < epsilon, arm, best)

    return jax.vmap(choose)(keys, best).astype(jnp.int32)


def _check_arms(num_arms: int) -> None:
    if num_arms < 1:
        raise UsageError(f"a bandit of {num_arms} arms: it must have at least 1.")
