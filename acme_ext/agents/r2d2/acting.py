"""How R2D2's actors act, and what they say of it."""

from collections.abc import Callable
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.exploration import epsilon_greedy
from acme_ext.acting.policy import Context, Policy
from acme_ext.agents.r2d2 import losses
from acme_ext.agents.r2d2.config import R2D2Config
from acme_ext.agents.r2d2.networks import NO_ACTION, Inputs
from acme_ext.networks.recurrent import LSTMState, initial_lstm_state
from acme_ext.ops import value
from acme_ext.types import Array, Params, Sequence, Tree


class RecurrentState(NamedTuple):
    """What R2D2's policy remembers."""

    core: LSTMState
    action: Array  # [B] int32, the last one; NO_ACTION before an episode's first


def initial_state(batch: int, config: R2D2Config) -> RecurrentState:
    """Returns the state before an episode."""
    return RecurrentState(initial_lstm_state(batch, config.lstm_size), np.full(batch, NO_ACTION, np.int32))


def make_policy(network: hk.Transformed, config: R2D2Config, epsilon: Callable[[Context], Array]) -> Policy:
    """Returns the epsilon-greedy recurrent policy.

    Its extras are what first priorities are made of: `q_taken` `[B]`, the value of the action that is taken, and
    `q_max` `[B]`, that of the best.

    Args:
        network: see `networks.make_network`.
        config: the agent's.
        epsilon: of a context; `[]` or `[B]`.
    """

    def apply(params: Params, context: Context, observation: Tree, state: RecurrentState):
        now = Inputs(observation, state.action, context.reward, jnp.zeros(context.reward.shape, bool))
        q, core = network.apply(params, None, jax.tree.map(lambda x: jnp.asarray(x)[None], now), state.core)
        q = q[0]
        action = epsilon_greedy(context.key, q, epsilon(context))
        extras = {"q_taken": value.take_action(q, action), "q_max": jnp.max(q, axis=-1)}
        return action, RecurrentState(core, action), extras

    return Policy(apply, lambda batch: initial_state(batch, config))


def first_priority(batch: Sequence, config: R2D2Config) -> np.ndarray:
    """Returns the first priorities `[M]` of new sequences, by the values that their actor had anyway: Q-learning errors
    in the place of the learner's double Q-learning ones.

    The last timestep's values are not known yet: where no termination makes them needless, the values of the step
    before stand in.

    Args:
        batch: NumPy arrays, with the policy's extras.
        config: the agent's.
    """
    q_max, mask = batch.extras["q_max"], batch.mask
    known = np.concatenate([mask[1:] > 0, np.zeros_like(mask[:1], bool)])
    v_t = np.where(known, np.concatenate([q_max[1:], q_max[-1:]]), q_max)
    target = losses.n_step_target(batch.reward[1:], batch.discount, v_t, mask, config.n_step, config.rescaling_epsilon)
    error = target - batch.extras["q_taken"]
    learned = slice(config.burn_in, None)
    return losses.priority(error[learned], mask[learned], config.priority_max_share, config.priority_offset)
