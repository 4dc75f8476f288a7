"""How AlphaZero acts: by a tree search with the rules of the game."""

import jax
import jax.numpy as jnp

from acme_ext.acting.policy import Policy
from acme_ext.agents.alphazero.config import AlphaZeroConfig
from acme_ext.agents.alphazero.networks import Networks
from acme_ext.agents.muzero.acting import Plan, policy_of
from acme_ext.envs.board_rules import rules_of
from acme_ext.ops import masking, search
from acme_ext.ops.search import Root, Searched, Step
from acme_ext.specs import STATE
from acme_ext.types import Array, Params, Tree


def make_policy(networks: Networks, config: AlphaZeroConfig, *, evaluation: bool) -> Policy:
    """Returns the policy that searches with the rules; in evaluation without noise, and with the best action."""
    return policy_of(planner(networks, config), config, evaluation=evaluation)


def planner(networks: Networks, config: AlphaZeroConfig) -> Plan:
    """Returns the search with the rules of the game."""
    network, support = networks.network, config.support

    def evaluate(params: Params, observation: Tree, legal: Array | None) -> tuple[Array, Array]:
        prediction = network.predict(params, network.represent(params, observation))
        return masking.masked(prediction.logits, legal), support.mean(prediction.value)

    def plan(params: Params, keys: Array, observation: Tree, explore: bool) -> Searched:
        rules = rules_of(networks.game)

        def model(action: Array, state: Tree) -> tuple[Step, Tree]:
            after = jax.vmap(rules.step)(state, action)
            reward = jnp.take_along_axis(after.rewards, state.current_player[:, None], axis=1)[:, 0]
            logits, value = evaluate(params, after.observation, after.legal_action_mask)
            over = after.terminated | after.truncated
            sign = jnp.where(after.current_player == state.current_player, 1.0, -1.0)
            return Step(
                reward, jnp.where(over, 0.0, sign * config.discount), logits, jnp.where(over, 0.0, value)
            ), after

        state = jax.vmap(rules.unpack)(observation[STATE])
        legal = masking.legal_actions(observation)
        logits, value = evaluate(params, masking.visible(observation), legal)
        return search.search(config.search, keys, Root(logits, value, state), model, legal, explore=explore)

    return plan
