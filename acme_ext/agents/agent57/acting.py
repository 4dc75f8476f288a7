"""How Agent57's actors select a policy of the family for each episode: with a bandit for each environment."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from acme_ext.acting.policy import Context, Policy, PolicyMemory
from acme_ext.agents.agent57.config import Agent57Config
from acme_ext.agents.ngu import acting as ngu
from acme_ext.agents.ngu.acting import Choice, Run
from acme_ext.agents.ngu.networks import NGUNetworks
from acme_ext.ops import bandits, multistep
from acme_ext.types import Array, Tree
from acme_ext.utils import trees


def make_policy(networks: NGUNetworks, config: Agent57Config, *, evaluation: bool) -> Policy:
    """Returns the policy. A bandit selects the family's policy for each episode.

    In evaluation it is the policy with the best mean return in the actors' newest episodes.
    """
    choice = best_so_far(config.num_arms) if evaluation else by_bandit(config)
    preferred = functools.partial(combined_values, rescaling_epsilon=config.rescaling_epsilon)
    policy = ngu.policy_of(networks, config, choice, evaluation=evaluation, preferred=preferred)
    return (
        policy
        if evaluation
        else policy._replace(shared_statistics=functools.partial(shared_statistics, num_arms=config.num_arms))
    )


class Ongoing(NamedTuple):
    """What the bandit is told when an episode has ended.

    It is not saved, because a resumed run begins new episodes: the return of a part of an episode would mislead.
    """

    arm: Array  # [B] int32, the policy of the current episode; -1 before the first one
    episode_return: Array  # [B] undiscounted return of the episode so far


def by_bandit(config: Agent57Config) -> Choice:
    """Returns the selection by a sliding-window UCB bandit (Badia et al. 2020b, section 3.2).

    The bandit's reward is the episode's return. The bandit is updated when the next episode begins.
    """
    bandit = bandits.sliding_window_ucb(
        config.num_arms, config.bandit_window, config.bandit_scale, config.bandit_epsilon
    )

    def init(batch: int) -> PolicyMemory:
        return PolicyMemory(bandit.init(batch), Ongoing(np.full(batch, -1, np.int32), np.zeros(batch, np.float32)))

    def select(keys: Array, context: Context, memory: PolicyMemory) -> tuple[Array, PolicyMemory]:
        window, (arm, episode_return) = memory
        first = context.first
        played = bandit.update(window, jnp.maximum(arm, 0), episode_return)
        window = trees.select(first & (arm >= 0), played, window)
        arm = jnp.where(first, bandit.select(keys, window), arm)
        # The last reward of an episode arrives before `first`; the reward at a `first` timestep is 0.
        episode_return = jnp.where(first, 0.0, episode_return) + context.reward
        return arm, PolicyMemory(window, Ongoing(arm, episode_return))

    return Choice(init, select)


def shared_statistics(run: Run, num_arms: int) -> Run:
    """Returns the initial `run` for the evaluation's policy, made from the actors' `run`.

    It has the number of episodes of each policy `[N]` and the sum of their returns `[N]`, over the newest episodes of
    all environments. The average of the distances starts empty.
    """
    counts = bandits.in_window(run.choice, num_arms)
    return Run(bandits.Counts(*(x.sum(axis=0) for x in counts)), ngu.Distances(ngu.ZERO, ngu.ZERO))


def best_so_far(num_arms: int) -> Choice:
    """Returns the selection of the policy with the best mean return in the actors' newest episodes.

    In a tie it is the first such policy. It is policy 0 if there are no episodes yet.
    """

    def init(batch: int) -> PolicyMemory:
        return PolicyMemory(bandits.Counts(*(np.zeros((batch, num_arms), np.float32) for _ in range(2))))

    def select(keys: Array, context: Context, memory: PolicyMemory) -> tuple[Array, PolicyMemory]:
        counts: bandits.Counts = memory.run
        mean: Array = jnp.where(counts.plays > 0, counts.total / jnp.maximum(counts.plays, 1), -jnp.inf)
        return jnp.argmax(mean, axis=-1).astype(jnp.int32), memory

    return Choice(init, select)


def combined_values(q: Tree, beta: Array, rescaling_epsilon: float | None) -> Array:
    """Returns the combined action values `[..., A]` (Badia et al. 2020b, section 3.1).

    h(h^-1(Q_e) + beta h^-1(Q_i))

    Args:
        q: the action values of the reward and of the bonus, `[..., A]` each, rescaled by h.
        beta: `[...]` weights of the bonus.
        rescaling_epsilon: epsilon of h; None for unscaled values.
    """
    extrinsic, bonus = q
    beta = beta[..., None]
    if rescaling_epsilon is None:
        return extrinsic + beta * bonus
    extrinsic, bonus = (multistep.signed_parabolic(x, rescaling_epsilon) for x in (extrinsic, bonus))
    return multistep.signed_hyperbolic(extrinsic + beta * bonus, rescaling_epsilon)
