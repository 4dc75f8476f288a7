"""TD3+BC's learning: like TD3's, with a different policy loss."""

from acme_ext.agents.td3 import learning as td3
from acme_ext.agents.td3_bc import losses
from acme_ext.agents.td3_bc.config import TD3BCConfig
from acme_ext.learning.core import LearnerCore
from acme_ext.networks.continuous import Networks
from acme_ext.types import Array, Transition, Tree


def make_core(networks: Networks, config: TD3BCConfig, observation: Tree) -> LearnerCore[td3.State]:
    """Returns TD3+BC's learner core; the arguments are the same as for TD3."""

    def policy_loss(q: Array, action: Array, batch: Transition) -> Array:
        return losses.policy_loss(q, action, batch.action, config.imitation_alpha)

    return td3.make_core(networks, config, observation, loss_of_policy=policy_loss)
