"""RND's learning: like PPO's, with the combined advantages of reward and bonus."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.agents.ppo import learning as ppo
from acme_ext.agents.ppo.losses import clip_rewards
from acme_ext.agents.rnd.config import RNDConfig
from acme_ext.agents.rnd.networks import NUM_VALUES
from acme_ext.learning import intrinsic
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.intrinsic import Distillation, DistillationState
from acme_ext.learning.on_policy import masked_mean
from acme_ext.networks.recurrent import RecurrentNetwork
from acme_ext.ops.intrinsic import continuing_advantages
from acme_ext.ops.policy import truncated_generalized_advantage_estimation
from acme_ext.types import Array, Params, Sample, Sequence, Tree
from acme_ext.utils.trees import merge_axes


class State(NamedTuple):
    """The learning state, with everything that is needed to resume."""

    ppo: ppo.State
    distillation: DistillationState
    scale: intrinsic.Scale


class RewardedBehaviour(NamedTuple):
    """The policy's extras that PPO's learning uses, and the bonuses."""

    log_prob: Array  # [T, B]
    learner_steps: Array  # [T, B]
    bonus: Array  # [T, B] scaled bonus of each step


def make_core(network: RecurrentNetwork, config: RNDConfig, observation: Tree) -> LearnerCore[State]:
    """Returns RND's learner core; the arguments are the same as for PPO."""

    def advantages(unrolls: Sequence, values: Array) -> tuple[Array, Array]:
        reward = clip_rewards(unrolls.reward[1:], config.max_abs_reward)
        extrinsic = truncated_generalized_advantage_estimation(
            reward, unrolls.discount, config.gae_lambda, values[..., 0], unrolls.mask
        )
        bonus = continuing_advantages(
            unrolls.extras.bonus,
            config.intrinsic_discount,
            config.gae_lambda,
            values[..., 1],
            unrolls.mask,
            unrolls.first,
        )
        target = jnp.stack([extrinsic, bonus], axis=-1) + values[:-1]
        return config.extrinsic_coef * extrinsic + config.intrinsic_coef * bonus, target

    inner = ppo.make_core(network, config, observation, advantages=advantages, num_values=NUM_VALUES)
    part = Distillation(config.distillation, observation)

    def init(key: Array) -> State:
        ppo_key, part_key = jax.random.split(key)
        return State(inner.init(ppo_key), part.init(part_key), intrinsic.init_scale())

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], None]:
        unrolls: Sequence = sample.data
        following, mask = jax.tree.map(lambda x: x[1:], unrolls.observation), unrolls.mask
        seen = part.seen(state.distillation, following, mask)
        errors = part.errors(seen.params, following)
        bonus, scale = intrinsic.scaled(state.scale, errors, mask, config.intrinsic_discount)
        # Until the moments of observations are accurate, errors depend mainly on the observations' scale.
        quiet = seen.steps <= config.quiet_steps
        scale = jax.tree.map(lambda old, new: jnp.where(quiet, old, new), state.scale, scale)
        bonus: Array = jnp.where(quiet, 0.0, bonus)
        given = intrinsic.shuffle(state.distillation.shuffle_key, bonus, mask) if config.shuffled else bonus
        extras = RewardedBehaviour(unrolls.extras.log_prob, unrolls.extras.learner_steps, given)
        learned, metrics, _ = inner.step(state.ppo, sample._replace(data=unrolls._replace(extras=extras)))
        flat = merge_axes(following)
        distilled, loss = part.train(seen, flat, mask.reshape(-1), updates=config.distillation_updates)
        metrics |= {"bonus": masked_mean(bonus, mask), "bonus_max": jnp.max(bonus), "distillation_loss": loss}
        return State(learned, distilled, scale), metrics, None

    def variables(state: State) -> dict[str, Params]:
        return inner.variables(state.ppo)

    return LearnerCore(init, step, variables)
