"""Agent57's learning: like NGU's, but with two kinds of values, each with its own reward and its own optimizer."""

import jax.numpy as jnp
import optax

from acme_ext.agents.agent57.acting import combined_values
from acme_ext.agents.agent57.config import Agent57Config
from acme_ext.agents.agent57.networks import PARTS
from acme_ext.agents.ngu import learning as ngu
from acme_ext.agents.ngu.learning import State
from acme_ext.agents.ngu.networks import NGUNetworks
from acme_ext.agents.r2d2 import learning as r2d2
from acme_ext.agents.r2d2 import losses
from acme_ext.learning.core import LearnerCore, LossOutput
from acme_ext.types import Array, Params, Sequence, Tree


def make_core(networks: NGUNetworks, config: Agent57Config, observation: Tree) -> LearnerCore[State]:
    """Returns Agent57's learner core; the arguments are the same as for NGU.

    One network learns the values of the reward, and the other one the values of the bonus. Both use Retrace with the
    same target policy, which is epsilon-greedy in the combined values. A sequence's priority is computed from the sum
    of the absolute errors of both.
    """

    network = networks.values

    def loss(
        params: Params, target_params: Params, batch: Sequence, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        inputs, steps, bonus, beta = ngu.asked(batch, config)
        q = r2d2.values_of(network, params, inputs, config)
        q_target = r2d2.values_of(network, target_params, inputs, config)
        combined = combined_values(q, beta, config.rescaling_epsilon)
        errors = [
            r2d2.td_error(q, q_target, steps._replace(reward=reward), config, preferred=combined)
            for q, q_target, reward in zip(q, q_target, (steps.reward, bonus), strict=True)
        ]
        size = jnp.abs(errors[0]) + jnp.abs(errors[1])
        priority = losses.sequence_error(size, steps.mask, config.priority_max_share)
        total = losses.sequence_loss(errors[0], weight) + losses.sequence_loss(errors[1], weight)
        return total, r2d2.output(combined, size, priority, steps)

    optimizer = optax.multi_transform({name: r2d2.adam(config) for name in PARTS}, {name: name for name in PARTS})
    values = r2d2.core_of_loss(loss, network, config, ngu.example(observation), optimizer)
    return ngu.with_bonus(values, networks, config, observation)
