"""How R2D2's actors act, and the initial priorities of their sequences."""

from collections.abc import Callable

import jax.numpy as jnp

from acme_ext.acting.exploration import epsilon_greedy, epsilon_greedy_probabilities, ladder
from acme_ext.acting.policy import Context, Policy
from acme_ext.acting.values import ActorValues, SequenceValues
from acme_ext.agents.r2d2 import losses
from acme_ext.agents.r2d2.config import R2D2Config
from acme_ext.networks.recurrent import RecurrentNetwork
from acme_ext.ops import masking, multistep, value
from acme_ext.types import Array, Params, Sequence, Tree
from acme_ext.utils.arrays import numpy_of


def make_policy(network: RecurrentNetwork, config: R2D2Config, *, evaluation: bool) -> Policy:
    """Returns the epsilon-greedy recurrent policy, with a different epsilon for each environment, see
    `exploration.ladder`.

    In evaluation epsilon is `evaluation_epsilon`.
    """
    return policy_of(network, ladder(config, evaluation=evaluation), retraced=config.retrace_lambda is not None)


def policy_of(network: RecurrentNetwork, epsilon: Callable[[Context], Array], *, retraced: bool = False) -> Policy:
    """Returns the epsilon-greedy policy of a recurrent Q-network.

    Its extras are `ActorValues`, for the initial priorities of new sequences, or `SequenceValues` for Retrace.

    Args:
        network: see `networks.make_network`.
        epsilon: `context -> epsilon`, `[]` or `[B]`.
        retraced: whether to store the probabilities of actions, for Retrace.
    """

    def apply(params: Params, context: Context, observation: Tree, state: Tree):
        q, state = network.step(params, context.reward, observation, state)
        legal = masking.legal_actions(observation)
        q = masking.masked(q, legal)
        action = epsilon_greedy(context.key, q, epsilon(context), legal)
        extras = ActorValues(value.take_action(q, action), jnp.max(q, axis=-1))
        if retraced:
            probabilities = epsilon_greedy_probabilities(q, epsilon(context), legal)
            extras = SequenceValues(*extras, value.take_action(probabilities, action))
        return action, network.remember(state, action), extras

    return Policy(apply, network.init_memory)


def first_error(batch: Sequence, config: R2D2Config) -> Array:
    """Returns the errors `[M]` for the initial priorities of new sequences.

    They are Q-learning errors from the values that the actor computed for acting; the learner's errors are double
    Q-learning or Retrace errors.

    The values of the last timestep are not known yet. Unless the episode terminated, the values of the timestep before
    are used instead.

    Args:
        batch: sequences as NumPy or JAX arrays, with the policy's extras.
        config: the agent's config.
    """
    best, mask = batch.extras.best, batch.mask
    xp = numpy_of(best, mask)
    v_t = xp.where(multistep.continues_of(mask), xp.concatenate([best[1:], best[-1:]]), best)
    target = losses.n_step_target(batch.reward[1:], batch.discount, v_t, mask, config.n_step, config.rescaling_epsilon)
    error = target - batch.extras.taken
    learned = slice(config.replay.burn_in, None)
    return losses.sequence_error(error[learned], mask[learned], config.priority_max_share)
