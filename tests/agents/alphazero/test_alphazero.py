import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from acme_ext import builders, envs
from acme_ext.acting.policy import Context
from acme_ext.agents.alphazero.config import AlphaZeroConfig
from acme_ext.envs.board import rules_of
from acme_ext.errors import UsageError
from acme_ext.interfaces import EnvironmentSpec
from acme_ext.ops.search import SearchConfig
from acme_ext.utils import compiling

OPTIONS = {"self_play": True, "game_state": True}
SMALL = AlphaZeroConfig(hidden_sizes=(8,), state_size=8, search=SearchConfig(simulations=64, value_scale=1.0))


@pytest.fixture(scope="module")
def spec():
    with contextlib.closing(envs.make("board:tic_tac_toe", **OPTIONS)) as environment:
        return envs.make_spec(environment)


@pytest.mark.parametrize("gumbel", [True, pytest.param(False, marks=pytest.mark.release)])
def test_it_wins_where_it_can_and_blocks_where_it_must(spec, gumbel):
    """By the rules alone: the network says nothing yet."""
    search = dataclasses.replace(SMALL.search, gumbel=gumbel)
    agent = builders.AlphaZero(dataclasses.replace(SMALL, search=search)).make_agent(spec)
    params = agent.core.variables(agent.core.init(jax.random.key(0)))["policy"]
    rules, states = rules_of("tic_tac_toe"), []
    for moves in ((0, 3, 1, 4), (0, 4, 1)):  # wins at 2; must block at 2
        state = rules.init(jax.random.PRNGKey(0))
        for move in moves:
            state = rules.step(state, move)
        states.append(state)
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    observation = {
        "board": states.observation,
        "action_mask": states.legal_action_mask,
        "player": states.current_player,
        "game_state": jax.vmap(rules.pack)(states),
    }
    context = Context(jax.random.split(jax.random.key(0), 2), jnp.int32(0), jnp.zeros(2), jnp.zeros(2))
    action, _, extras = compiling.jit(agent.evaluation_policy.apply)(params, context, observation, ())
    assert action.tolist() == [2, 2]
    assert extras.value[0] > extras.value[1]
    assert not np.asarray(extras.policy)[~np.asarray(observation["action_mask"])].any()


@pytest.mark.parametrize("missing", ["action_mask", "player", "game_state"])
def test_an_observation_that_lacks_a_field_is_refused(spec, missing):
    fields = {name: leaf for name, leaf in spec.observations.items() if name != missing}
    with pytest.raises(UsageError, match=f"has no field '{missing}'"):
        builders.AlphaZero().make_agent(spec._replace(observations=fields))


def test_an_observation_that_is_no_mapping_is_refused():
    spec = EnvironmentSpec(
        observations=specs.Array((4,), np.float32),
        actions=specs.DiscreteArray(2),
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0, 1),
    )
    with pytest.raises(UsageError, match="give it a board:GAME"):
        builders.AlphaZero().make_agent(spec)


def test_states_of_other_games_are_refused(spec):
    fields = {**spec.observations, "game_state": specs.Array((5,), np.uint8, "mine:hive")}
    with pytest.raises(UsageError, match="not of 'mine:hive'"):
        builders.AlphaZero().make_agent(spec._replace(observations=fields))
