"""AlphaZero's learning: the network learns the searches' policies and the games' outcomes."""

import jax
import jax.numpy as jnp
from jax import lax

from acme_ext.agents.alphazero import symmetries
from acme_ext.agents.alphazero.config import AlphaZeroConfig
from acme_ext.agents.alphazero.networks import Networks
from acme_ext.agents.muzero import losses
from acme_ext.agents.muzero.acting import own_steps
from acme_ext.agents.muzero.learning import core_of_loss, draw_roots, take, value_errors, values_of, weighed
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
        r_t, mask = batch.reward[1:], batch.mask
        discount = losses.signed_discounts(batch.discount, batch.observation)
        # With n_step=None, returns bootstrap from these only in games longer than a sequence, and at sampled moves.
        v_t = lax.stop_gradient(values_of(network, support, target_params, batch.observation))
        z = losses.value_targets(r_t, discount, v_t[1:], mask, config.n_step, own_steps(batch, config), v_t[:-1])

        root_key, turn_key = jax.random.split(key)
        roots = draw_roots(root_key, batch, config)
        targets = losses.targets_at(roots, batch.extras.policy, z, r_t, batch.discount, mask, 0)
        seen = jax.tree.map(lambda x: take(x, roots), batch.observation)
        if config.symmetries:
            seen, turned = symmetries.drawn(turn_key, networks.game, seen, jnp.asarray(targets.policy)[0])
            targets = targets._replace(policy=turned[None])
        prediction = network.predict(params, network.represent(params, seen))
        logits = masking.masked(prediction.logits, masking.legal_actions(seen))
        nothing = jnp.zeros_like(prediction.value)[None]
        costs = losses.unrolled_costs(logits[None], prediction.value[None], nothing, targets, support)
        each = costs.policy + config.value_coef * costs.value
        metrics = {
            "policy_loss": jnp.mean(costs.policy),
            "value_loss": jnp.mean(costs.value),
            "value_error": jnp.mean(jnp.abs(support.mean(prediction.value) - targets.value[0])),
            "target_mean": jnp.mean(targets.value[0]),
            "target_abs_max": jnp.max(jnp.abs(z * mask)),
        }
        return weighed(each, weight, roots), LossOutput(metrics, value_errors(batch, roots, targets.value[0]))

    return core_of_loss(loss, network, config, observation)
