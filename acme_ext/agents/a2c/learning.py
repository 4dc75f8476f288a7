"""A2C's learning: like PPO's, but with one step along the plain policy gradient of the whole batch."""

from acme_ext.agents.a2c import losses
from acme_ext.agents.a2c.config import A2CConfig
from acme_ext.agents.ppo.learning import State, core_of_policy_loss
from acme_ext.learning import optimizers
from acme_ext.learning.core import LearnerCore
from acme_ext.networks.recurrent import RecurrentNetwork
from acme_ext.types import Array, Tree


def make_core(network: RecurrentNetwork, config: A2CConfig, observation: Tree) -> LearnerCore[State]:
    """Returns A2C's learner core."""

    def policy_loss(log_prob: Array, behaviour_log_prob: Array, advantage: Array, learner_steps: Array) -> Array:
        del learner_steps
        return losses.policy_gradient_loss(log_prob, behaviour_log_prob, advantage)

    learning_rate = optimizers.decayed(config.learning_rate, config.learning_rate_decay_steps)
    optimizer = optimizers.rmsprop(learning_rate, config.rmsprop_decay, config.rmsprop_epsilon)
    return core_of_policy_loss(
        policy_loss, network, config, optimizer, observation, epochs=1, parts=1, values_variance=0.0
    )
