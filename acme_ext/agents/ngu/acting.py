"""How NGU's actors act: with one policy of the family per episode; they also compute the bonus at each step."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.exploration import epsilon_greedy, epsilon_greedy_probabilities, ladder, other_keys
from acme_ext.acting.policy import Context, Policy, PolicyMemory, StateAndMemory
from acme_ext.agents.ngu.config import NGUConfig
from acme_ext.agents.ngu.networks import NGUNetworks, Seen
from acme_ext.agents.r2d2 import acting as r2d2
from acme_ext.learning.intrinsic import DistillationParams
from acme_ext.learning.normalize import Moments
from acme_ext.ops import intrinsic, masking, value
from acme_ext.types import Array, Params, Sequence, Tree
from acme_ext.utils import trees
from acme_ext.utils.arrays import numpy_of


class NGUParams(NamedTuple):
    """The policy's parameters."""

    values: Params
    embedding: Params
    distillation: DistillationParams
    errors: Moments  # [] moments of the distillation's errors


class NGUExtras(NamedTuple):
    """The data that is stored with every action."""

    taken: Array  # [B] value of the action taken
    best: Array  # [B] value of the greedy action
    probability: Array  # [B] probability mu of the action taken
    arm: Array  # [B] int32, index of the acting policy in the family
    bonus: Array  # [B] bonus that came with the observation, for the step before


ZERO, WHICH = np.zeros((), np.float32), np.zeros((), np.int32)
EXAMPLE_EXTRAS = NGUExtras(ZERO, ZERO, ZERO, WHICH, ZERO)
"""Example extras of one environment's step, for the replay's shapes and data types."""


class Distances(NamedTuple):
    """The running average of the squared distances to the nearest neighbours, d_m**2."""

    average: Array  # [B]
    seen: Array  # [B] float32, number of steps in the average


class Choice(NamedTuple):
    """How a policy of the family is selected for each episode."""

    init: Callable[[int], PolicyMemory]
    """`B -> memory [B, ...]`: what the selection remembers, at first."""
    select: Callable[[Array, Context, PolicyMemory], tuple[Array, PolicyMemory]]
    """`(keys [B], context, memory) -> (arms [B], memory)`, called at every step. The arms are only used where
    `context.first`.
    """


class Run(NamedTuple):
    """The part of the policy's memory that is kept for the whole run."""

    choice: Tree  # [B, ...] see `Choice`
    distances: Distances


class Episode(NamedTuple):
    """The part of the policy's memory that is used within an episode."""

    memory: intrinsic.EpisodicMemory
    arm: Array  # [B] int32
    choice: Tree  # [B, ...] see `Choice`


Preferred = Callable[[Tree, Array], Array]
"""`(the network's output [..., A], beta [...]) -> the values for action selection [..., A]`."""


def uniform(num_arms: int) -> Choice:
    """Returns the uniformly random selection of a policy."""

    def select(keys: Array, context: Context, memory: PolicyMemory) -> tuple[Array, PolicyMemory]:
        return jax.vmap(lambda key: jax.random.randint(key, (), 0, num_arms))(keys), memory

    return Choice(lambda batch: PolicyMemory(), select)


def exploiting() -> Choice:
    """Returns the selection that always takes policy 0, which has no bonus."""
    return Choice(lambda batch: PolicyMemory(), lambda keys, context, memory: (jnp.zeros(len(keys), jnp.int32), memory))


def own_values(q: Tree, beta: Array) -> Array:
    """Returns the values of a single network, which already include both reward and bonus."""
    del beta
    return q


def make_policy(networks: NGUNetworks, config: NGUConfig, *, evaluation: bool) -> Policy:
    """Returns NGU's policy, with a random policy of the family in each episode.

    In evaluation it is always the policy without a bonus.
    """
    return policy_of(networks, config, exploiting() if evaluation else uniform(config.num_arms), evaluation=evaluation)


def policy_of(
    networks: NGUNetworks, config: NGUConfig, choice: Choice, *, evaluation: bool, preferred: Preferred = own_values
) -> Policy:
    """Returns the epsilon-greedy policy of a family, with R2D2's epsilons.

    Its extras are `NGUExtras`.

    Args:
        networks: see `networks.make_networks`.
        config: the agent's config.
        choice: selects the policy of the family for each episode.
        evaluation: whether to act for evaluation.
        preferred: see `Preferred`.
    """
    epsilon_of = ladder(config, evaluation=evaluation)

    def init_policy_memory(batch: int) -> PolicyMemory:
        zeros = np.zeros(batch, np.float32)
        memory = intrinsic.init_memory(batch, config.memory_rows, config.embedding_size)
        chosen = choice.init(batch)
        run = Run(chosen.run, Distances(zeros, zeros))
        return PolicyMemory(run, Episode(memory, np.zeros(batch, np.int32), chosen.episode))

    def bonus_of(params: NGUParams, context: Context, observation: Tree) -> tuple[Array, Distances, Tree]:
        """Returns the bonuses `[B]` for observations, the updated distances, and the updated episodic memory."""
        first, memory = context.first, context.memory.episode.memory
        old: Distances = context.memory.run.distances
        embedding = networks.embedding.embed(params.embedding, observation)
        squares, known = intrinsic.nearest_distances(memory, embedding, config.neighbours)
        known = known & ~first
        average = intrinsic.moving_average(*old, jnp.mean(squares, axis=-1), config.distance_horizon)
        distances = trees.select(known, Distances(*average), old)
        kernel = {"kernel_epsilon": config.kernel_epsilon, "cluster_distance": config.cluster_distance}
        episodic = intrinsic.kernel_bonus(squares, distances.average, **kernel)
        error = networks.distillation.errors(params.distillation, observation)
        mean, stddev = params.errors.mean, jnp.sqrt(params.errors.variance)
        lifelong = intrinsic.lifelong_factor(error, mean, stddev, config.max_lifelong)
        memory = intrinsic.remember(memory, embedding, first, squares)
        return jnp.where(known, episodic * lifelong, 0.0), distances, memory

    def apply(params: NGUParams, context: Context, observation: Tree, state: Tree):
        run, episode = context.memory
        bonus, distances, memory = bonus_of(params, context, observation)
        fresh, chosen = choice.select(other_keys(context.key), context, PolicyMemory(run.choice, episode.choice))
        arm = jnp.where(context.first, fresh, episode.arm)
        q, state = networks.values.step(params.values, context.reward, Seen(observation, bonus, arm), state)
        legal = masking.legal_actions(observation)
        q = masking.masked(preferred(q, jnp.asarray(config.betas)[arm]), legal)
        epsilon = epsilon_of(context)
        action = epsilon_greedy(context.key, q, epsilon, legal)
        probability = value.take_action(epsilon_greedy_probabilities(q, epsilon, legal), action)
        extras = NGUExtras(value.take_action(q, action), jnp.max(q, axis=-1), probability, arm, bonus)
        kept = PolicyMemory(Run(chosen.run, distances), Episode(memory, arm, chosen.episode))
        return action, StateAndMemory(networks.values.remember(state, action), kept), extras

    return Policy(apply, networks.values.init_memory, init_policy_memory)


def arms_of(batch: Sequence) -> Array:
    """Returns the index of the policy that acted `[B]`, which is the same in all steps of a sequence."""
    return (batch.extras.arm[:-1] * (batch.mask > 0)).max(axis=0)


def bonuses_of(batch: Sequence) -> Array:
    """Returns the bonuses `[T, B]` of steps. The bonus of a step comes with the next timestep."""
    return batch.extras.bonus[1:] * batch.mask


def first_error(batch: Sequence, config: NGUConfig) -> Array:
    """Returns the errors `[M]` for the initial priorities of new sequences.

    They are R2D2's, with the reward, bonus and discount of the policy that acted.
    """
    arm, xp = arms_of(batch), numpy_of(batch.reward)
    betas, discounts = xp.asarray(config.betas), xp.asarray(config.discounts)
    reward = xp.concatenate([batch.reward[:1], batch.reward[1:] + betas[arm] * bonuses_of(batch)])
    extras = NGUExtras(*(x[:-1] for x in batch.extras))
    own = batch._replace(reward=reward, discount=batch.discount * discounts[arm], extras=extras)
    return r2d2.first_error(own, config)
