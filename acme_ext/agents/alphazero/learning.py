"""AlphaZero's learning: the network learns the searches' policies and the games' outcomes."""

import jax
import jax.numpy as jnp

from acme_ext.agents.alphazero import symmetries
from acme_ext.agents.alphazero.config import AlphaZeroConfig
from acme_ext.agents.alphazero.networks import Networks
from acme_ext.agents.muzero import losses
from acme_ext.agents.muzero.learning import core_of_loss, draw_roots, targets_at, value_errors, value_targets, weighed
from acme_ext.agents.muzero.losses import take
from acme_ext.learning.core import LearnerCore, LossOutput, State
from acme_ext.ops import masking
from acme_ext.types import Array, Params, Sequence, Tree


def make_core(networks: Networks, config: AlphaZeroConfig, observation: Tree) -> LearnerCore[State]:
    """Returns AlphaZero's learner core.

    The value loss is the cross-entropy of a distribution over lost, drawn and won, instead of (z - v)**2 as in Silver
    et al. 2018.
    """
    network, support = networks.network, config.support

    def loss(
        params: Params, target_params: Params, batch: Sequence, weight: Array, key: Array
    ) -> tuple[Array, LossOutput]:
        root_key, turn_key = jax.random.split(key)
        # With n_step=None, returns bootstrap from the target network only in games longer than a sequence, and at
        # sampled moves.
        z = value_targets(network, config, target_params, batch)
        roots = draw_roots(root_key, batch, config)
        targets = targets_at(roots, batch, z, 0)
        seen = jax.tree.map(lambda x: take(x, roots), batch.observation)
        if config.symmetries:
            seen, turned = symmetries.drawn(turn_key, networks.game, seen, jnp.asarray(targets.policy)[0])
            targets = targets._replace(policy=turned[None])
        prediction = network.predict(params, network.represent(params, seen))
        logits = masking.masked(prediction.logits, masking.legal_actions(seen))
        no_rewards = jnp.zeros((0, *prediction.value.shape))
        costs = losses.unrolled_costs(logits[None], prediction.value[None], no_rewards, targets, support)
        each = costs.policy + config.value_coef * costs.value
        metrics = {
            "policy_loss": jnp.mean(costs.policy),
            "value_loss": jnp.mean(costs.value),
            "value_error": jnp.mean(jnp.abs(support.mean(prediction.value) - targets.value[0])),
            "target_mean": jnp.mean(targets.value[0]),
            "target_abs_max": jnp.max(jnp.abs(z * batch.mask)),
        }
        return weighed(each, weight, roots), LossOutput(metrics, value_errors(batch, roots, targets.value[0]))

    return core_of_loss(loss, network, config, observation)
