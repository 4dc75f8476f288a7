"""NGU's learning: like R2D2's, with each policy's own reward and discount, and training of the bonus's two networks."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from acme_ext.agents.ngu import acting
from acme_ext.agents.ngu.config import NGUConfig
from acme_ext.agents.ngu.networks import NGUNetworks, Seen
from acme_ext.agents.r2d2 import learning as r2d2
from acme_ext.agents.r2d2 import losses as r2d2_losses
from acme_ext.agents.r2d2.learning import Steps
from acme_ext.learning import core, intrinsic, normalize
from acme_ext.learning.core import LearnerCore, LossOutput, TrainState, sgd_step
from acme_ext.learning.intrinsic import DistillationState
from acme_ext.learning.normalize import Moments
from acme_ext.learning.on_policy import masked_mean
from acme_ext.types import Array, Params, Sample, Sequence, Tree
from acme_ext.utils.trees import merge_axes


class State(NamedTuple):
    """The learning state, with everything that is needed to resume."""

    values: core.State
    embedding: TrainState
    distillation: DistillationState
    errors: Moments  # [] moments of the distillation's errors


def make_core(networks: NGUNetworks, config: NGUConfig, observation: Tree) -> LearnerCore[State]:
    """Returns NGU's learner core."""
    network = networks.values

    def loss(
        params: Params, target_params: Params, batch: Sequence, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        inputs, steps, bonus, beta = asked(batch, config)
        q = r2d2.values_of(network, params, inputs, config)
        q_target = r2d2.values_of(network, target_params, inputs, config)
        error = r2d2.td_error(q, q_target, steps._replace(reward=steps.reward + beta * bonus), config)
        priority = r2d2_losses.sequence_error(error, steps.mask, config.priority_max_share)
        return r2d2_losses.sequence_loss(error, weight), r2d2.output(q, jnp.abs(error), priority, steps)

    return with_bonus(r2d2.core_of_loss(loss, network, config, example(observation)), networks, config, observation)


def example(observation: Tree) -> Seen:
    """Returns example inputs for the network of action values, for the parameters' shapes."""
    return Seen(observation, np.zeros(1, np.float32), np.zeros(1, np.int32))


def asked(batch: Sequence, config: NGUConfig) -> tuple[Sequence, Steps, Array, Array]:
    """Returns the network's inputs, the steps to learn from, their bonuses `[T, B]`, and the bonuses' weights `[B]`.

    The first sequences of the batch, a fraction of `exploiting_share`, are used to train policy 0; the others train the
    policy that acted. The steps have the environment's reward, and the discount of the policy that is trained.
    """
    arm = acting.arms_of(batch)
    arm = jnp.where(jnp.arange(len(arm)) < round(config.exploiting_share * len(arm)), 0, arm)
    seen = Seen(batch.observation, batch.extras.bonus, jnp.broadcast_to(arm, batch.reward.shape))
    steps = r2d2.steps_of(batch._replace(discount=batch.discount * jnp.asarray(config.discounts)[arm]), config)
    bonus = acting.bonuses_of(batch)[config.replay.burn_in :]
    return batch._replace(observation=seen), steps, bonus, jnp.asarray(config.betas)[arm]


def with_bonus(
    values: LearnerCore[core.State], networks: NGUNetworks, config: NGUConfig, observation: Tree
) -> LearnerCore[State]:
    """Returns a learner core that trains the action values and the bonus.

    The embedding and the distillation's predictor learn from the last steps of each sequence.
    """
    embedding, distillation = networks.embedding, networks.distillation
    optimizer = optax.adam(config.embedding_learning_rate)

    def init(key: Array) -> State:
        value_key, embedding_key, distillation_key = jax.random.split(key, 3)
        params = embedding.init(embedding_key, observation)
        return State(
            values.init(value_key),
            TrainState(params, optimizer.init(params)),
            distillation.init(distillation_key),
            normalize.init(jnp.zeros(())),
        )

    def loss(params: Params, before: Tree, after: Tree, action: Array, mask: Array) -> tuple[Array, Array]:
        logits = embedding.predict(params, embedding.embed(params, before), embedding.embed(params, after))
        entropy = optax.softmax_cross_entropy_with_integer_labels(logits, action)
        right = masked_mean((jnp.argmax(logits, axis=-1) == action).astype(jnp.float32), mask)
        decay = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(params))
        return masked_mean(entropy, mask) + config.embedding_decay * decay, right

    def step(state: State, sample: Sample) -> tuple[State, dict[str, Array], Array | None]:
        batch: Sequence = sample.data
        given = shuffled(state.distillation.shuffle_key, batch) if config.shuffled else batch
        learned, metrics, priorities = values.step(state.values, sample._replace(data=given))
        steps = last_steps(batch, config.embedding_steps)
        trained, info = sgd_step(loss, optimizer, state.embedding, *steps)
        seen = distillation.seen(state.distillation, steps.after, steps.mask)
        of_errors = normalize.update(
            state.errors, distillation.errors(seen.params, steps.after), steps.mask, config.error_horizon
        )
        distilled, distillation_loss = distillation.train(seen, steps.after, steps.mask)
        metrics |= {
            "embedding_loss": info.loss,
            "embedding_accuracy": info.aux,
            "distillation_loss": distillation_loss,
            "bonus": masked_mean(acting.bonuses_of(batch), batch.mask),
        }
        return State(learned, trained, distilled, of_errors), metrics, priorities

    def variables(state: State) -> dict[str, Params]:
        params = acting.NGUParams(
            values.variables(state.values)["policy"], state.embedding.params, state.distillation.params, state.errors
        )
        return {"policy": params}

    return LearnerCore(init, step, variables)


def shuffled(key: Array, batch: Sequence) -> Sequence:
    """Returns sequences whose bonuses are randomly permuted among the steps."""
    bonus, there = batch.extras.bonus, batch.mask > 0
    # A bonus comes with the next timestep, so the bonus at a sequence's first timestep is for an earlier step.
    came = jnp.concatenate([jnp.zeros_like(there[:1]), there])
    return batch._replace(extras=batch.extras._replace(bonus=intrinsic.shuffle(key, bonus, came)))


class Transitions(NamedTuple):
    """Steps in any order."""

    before: Tree  # [N, ...] observations
    after: Tree  # [N, ...]
    action: Array  # [N] int32
    mask: Array  # [N] 1 for steps, 0 for padding


def last_steps(batch: Sequence, count: int) -> Transitions:
    """Returns the last `count` steps of each sequence, N = count * B."""
    length = len(batch.mask)
    ends = jnp.max(jnp.where(batch.mask > 0, jnp.arange(1, length + 1)[:, None], 0), axis=0)
    time = ends - 1 - jnp.arange(count)[:, None]  # [count, B]
    there = time >= 0
    time = jnp.maximum(time, 0)

    def at(x: Array, later: int = 0) -> Array:
        return merge_axes(x[time + later, jnp.arange(x.shape[1])])

    before, after = (jax.tree.map(functools.partial(at, later=later), batch.observation) for later in (0, 1))
    return Transitions(
        before, after, at(batch.action).astype(jnp.int32), (there * at(batch.mask).reshape(there.shape)).reshape(-1)
    )
