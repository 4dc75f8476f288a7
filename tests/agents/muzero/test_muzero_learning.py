import dataclasses
from types import SimpleNamespace

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from acme_ext import envs
from acme_ext.acting.policy import Context
from acme_ext.agents.muzero import acting, learning
from acme_ext.agents.muzero.config import BOARD, MuZeroConfig, RootsConfig
from acme_ext.builders import MuZero
from acme_ext.errors import UsageError
from acme_ext.interfaces import EnvironmentSpec
from acme_ext.networks import models
from acme_ext.ops.search import SearchConfig, Searched
from acme_ext.specs import zeros
from acme_ext.types import Sample
from acme_ext.utils import compiling

SMALL = MuZeroConfig(
    hidden_sizes=(16,),
    state_size=8,
    batch_size=4,
    roots=3,
    unroll_steps=2,
    n_step=2,
    search=SearchConfig(simulations=4),
    replay=RootsConfig(length=4, prioritized=True),
)


def spec_of(observation=None, actions=None):
    return EnvironmentSpec(
        observations=observation or specs.Array((3,), np.float32),
        actions=actions or specs.DiscreteArray(2),
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0, 1),
    )


def batch_of(agent, rng):
    data = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), agent.replay.example(SMALL.batch_size))
    shape = data.mask.shape
    # The second action is rewarded, and an episode never ends.
    action = rng.integers(0, 2, shape).astype(np.int32)
    reward = np.concatenate([np.zeros_like(data.reward[:1]), action.astype(np.float32)])
    return data._replace(
        observation=rng.normal(size=data.observation.shape).astype(np.float32),
        action=action,
        reward=reward,
        discount=np.full(shape, 0.9, np.float32),
        mask=np.ones(shape, np.float32),
        extras=data.extras._replace(policy=np.broadcast_to(np.float32([0.2, 0.8]), (*shape, 2)).copy()),
    )


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="plain"),
        pytest.param({"value_prefix": True}, id="prefix", marks=pytest.mark.release),
        pytest.param(
            {"reanalyze": 0.5, "consistency_coef": 2.0, "value_prefix": True}, id="more", marks=pytest.mark.release
        ),
    ],
)
def test_the_model_learns_rewards_values_and_policies(fields):
    agent = MuZero(dataclasses.replace(SMALL, learning_rate=1e-2, **fields)).make_agent(spec_of())
    state, rng = agent.core.init(jax.random.key(0)), np.random.default_rng(0)
    step, losses = compiling.jit(agent.core.step), []
    for _ in range(60):
        state, metrics, errors = step(state, Sample(batch_of(agent, rng), np.ones(4, np.float32)))
        losses.append(float(metrics["reward_loss"]))
        assert np.isfinite(metrics["loss"])
        assert errors.shape == (4,)
    assert np.mean(losses[-5:]) < 0.3 * losses[0]
    assert metrics["reanalyzed_share"] == fields.get("reanalyze", 0.0)
    if "consistency_coef" in fields:
        assert metrics["consistency_loss"] < -0.2
    else:
        assert metrics["policy_loss"] < 0.02


def simple(**changed):
    """The metrics of a step with a model that leaves its state, one number, as it is, and rewards the second action.

    The value's loss has a slope of 1/3 by the state if the value is known to be 0 or 1.
    """
    network = models.ModelNetwork(
        init=lambda key, seen: {"state": jnp.zeros(())},
        represent=lambda params, seen: params["state"] * jnp.ones((len(seen), 1)),
        dynamics=lambda params, state, action: (50 * jnp.eye(3)[action + 1], state),
        predict=lambda params, state: models.Prediction(jnp.zeros((len(state), 2)), state * jnp.eye(3)[0]),
        project=lambda params, state, predict: state,
    )
    config = dataclasses.replace(SMALL, support_size=1, rescaling_epsilon=None, value_coef=1.0)
    core = learning.make_core(network, config, np.zeros((1, 3), np.float32))
    batch = batch_of(MuZero(SMALL).make_agent(spec_of()), np.random.default_rng(0))._replace(**changed)
    return jax.jit(core.step)(core.init(jax.random.key(0)), Sample(batch, np.ones(4, np.float32)))[1]


def test_gradients_are_halved_at_each_unrolled_step():
    metrics = simple(discount=np.zeros((8, 4), np.float32))  # every value is known: after the first step it is 0
    # Each of the two steps after the root has a weight of 1/2.
    np.testing.assert_allclose(metrics["gradient_norm"], (1 + 0.5 * 0.5 + 0.5 * 0.25) / 3, rtol=1e-5)


def test_the_model_is_given_the_actions_that_led_to_the_rewards():
    assert simple()["reward_loss"] < 1e-4


def test_the_models_states_are_compared_with_what_was_seen_there():
    network = models.ModelNetwork(
        None, lambda params, seen: seen + params, None, None, lambda params, state, predict: state
    )
    seen = np.array([[1, 0], [0, 1], [-1, 0], [0, -1], [1, 0]], np.float32)[:, None]
    states = np.array([[9, 9], [-3, 4], [0, -2]], np.float32)[:, None]
    root = jnp.array([[1]])

    def cost(params, mask):
        mask = np.array(mask, np.float32)[:, None]
        return learning.consistency_costs(network, params, states, seen, root, mask)[0]

    # The cosines at the two steps after the root are 3/5 and 1.
    np.testing.assert_allclose(cost(jnp.zeros(2), [1, 1, 1, 1]), -(0.6 + 1) / 2, rtol=1e-5)
    np.testing.assert_allclose(cost(jnp.zeros(2), [1, 1, 1, 0]), -0.6 / 2, rtol=1e-5)
    assert not jax.grad(cost)(jnp.zeros(2), [1, 1, 1, 1]).any()  # what was seen is no prediction


def test_a_reward_is_what_a_value_prefix_has_more_than_the_one_before():
    config = dataclasses.replace(SMALL, value_prefix=True, unroll_steps=2)
    support = config.support
    sums = {1: 3.0, 2: 5.0, 3: 1.5, 4: 1.0}

    def dynamics(params, state, action):
        """Counts the steps; the memory says how many there were since it was empty."""
        number = state.hidden[:, 0] + 1
        memory = jax.tree.map(lambda x: x + 1, state.memory)
        logits = jax.numpy.log(support.probs(jax.numpy.float32([sums[int(n)] for n in number])) + 1e-12)
        recalled.append(float(memory.hidden[0, 0]))
        return logits, models.Recalling(number[:, None], memory)

    recalled = []
    network = models.ModelNetwork(None, None, dynamics, None, None)
    zeros = np.zeros((1, 1), np.float32)
    state = acting.Summing(zeros, hk.LSTMState(zeros, zeros), np.zeros(1, np.float32), np.zeros(1, np.int32))
    step, rewards = acting.rewards_of(network, config), []
    for _ in range(4):
        reward, state = step({}, state, np.zeros(1, np.int32))
        rewards.append(float(reward[0]))
    # 3, then 5 of which 3 were there; then anew.
    np.testing.assert_allclose(rewards, [3.0, 2.0, 1.5, -0.5], rtol=1e-3)
    assert recalled == [1, 2, 1, 2]


@pytest.mark.release
def test_value_prefixes_are_searched_with_whatever_the_observation_is():
    for shape in ((3,), (10, 10, 4)):
        agent = MuZero(dataclasses.replace(SMALL, value_prefix=True)).make_agent(
            spec_of(specs.BoundedArray(shape, np.float32, 0, 1))
        )
        params = agent.core.variables(agent.core.init(jax.random.key(0)))["policy"]
        context = Context(jax.random.split(jax.random.key(1), 2), np.int32(0), np.zeros(2), np.zeros(2))
        action, _, extras = jax.jit(agent.policy.apply)(params, context, np.ones((2, *shape), np.float32), ())
        assert action.shape == (2,)
        np.testing.assert_allclose(np.sum(extras.policy, axis=-1), 1, rtol=1e-5)


def test_two_players_have_no_value_prefix():
    spec = envs.make_spec(envs.make("board:tic_tac_toe", num_envs=1, self_play=True))
    builder = MuZero(dataclasses.replace(BOARD, value_prefix=True))
    with pytest.raises(UsageError, match="value_prefix is true"):
        builder.make_networks(spec)


def test_the_replay_has_room_for_the_targets_of_its_last_roots():
    replay = MuZero(SMALL).make_agent(spec_of()).replay
    assert (replay.length, replay.period) == (4 + 2 + 2, 4)
    assert replay.prioritized
    assert replay.extras.policy.shape == (2,)


def test_first_priorities_are_those_of_the_searches_values():
    from acme_ext.agents.muzero.acting import Planned

    rng, first_error = np.random.default_rng(0), MuZero(SMALL).make_agent(spec_of()).replay.priority
    batch = batch_of(MuZero(SMALL).make_agent(spec_of()), rng)
    steps = len(batch.mask)
    value = np.arange(steps, dtype=np.float32)[:, None] * np.ones((1, 4), np.float32)
    planned = Planned(batch.extras.policy, value, np.ones_like(value))
    errors = first_error(batch._replace(extras=planned, reward=0 * batch.reward))
    # z_t = 0.81 nu_{t+2}, and of the last two steps 0.81 and 0.9 times what stands in for the last timestep's.
    z = [0.81 * (t + 2) for t in range(steps - 2)] + [0.81 * (steps - 1), 0.9 * (steps - 1)]
    np.testing.assert_allclose(errors, np.mean(np.abs(np.arange(steps) - np.array(z))), rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "kind"), [((4,), "mlp"), ((5, 5, 2), "grid"), ((64, 64, 3), "residual"), ((6, 7), "mlp")]
)
def test_networks_are_chosen_by_the_observation(shape, kind):
    assert models.kind_of(np.zeros((1, *shape))) == kind
    config = dataclasses.replace(SMALL, channels=4)
    spec = spec_of(specs.BoundedArray(shape, np.uint8, 0, 255))
    core = MuZero(config).make_agent(spec).core
    params = core.abstract_state().params
    assert any(leaf.ndim == 4 for leaf in jax.tree.leaves(params)) == (kind != "mlp")


@pytest.mark.parametrize(("torso", "kind"), [(None, "grid"), ("flat", "mlp")])
def test_on_a_board_the_networks_are_those_of_grids_but_for_a_torso(torso, kind):
    builder = MuZero(torso=torso).for_environment("board:tic_tac_toe")
    board = specs.BoundedArray((3, 3, 2), np.bool_, 0, 1, "board")
    mask = specs.BoundedArray((9,), np.bool_, 0, 1, "action_mask")
    spec = spec_of({"board": board, "action_mask": mask}, specs.DiscreteArray(9))
    network = builder.make_networks(spec)
    seen = {"board": np.zeros((1, 3, 3, 2), bool), "action_mask": np.ones((1, 9), bool)}
    state = jax.eval_shape(lambda key: network.represent(network.init(key, seen), seen), jax.random.key(0))
    assert state.shape == {"grid": (1, 3, 3, 32), "mlp": (1, 128)}[kind]


@pytest.mark.parametrize("kind", ["grid", "residual"])
def test_a_torso_is_refused_for_networks_that_have_none(kind):
    builder = MuZero(dataclasses.replace(SMALL, network_kind=kind), torso="flat")
    with pytest.raises(UsageError, match=f"network_kind is '{kind}': with a torso it must be mlp"):
        builder.make_agent(spec_of(specs.BoundedArray((5, 5, 2), np.uint8, 0, 255)))


def test_all_heads_start_at_zero_and_states_are_scaled():
    network = MuZero(SMALL).make_networks(spec_of())
    observation = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    params = network.init(jax.random.key(0), observation[:1])
    state = network.represent(params, observation)
    reward, after = network.dynamics(params, state, np.zeros(5, np.int32))
    for x in (*network.predict(params, after), reward):
        np.testing.assert_array_equal(x, 0)
    for x in (state, after):
        np.testing.assert_allclose(x.min(-1), 0, atol=1e-6)
        np.testing.assert_allclose(x.max(-1), 1, atol=1e-6)


def test_a_share_of_random_moves_without_sampled_moves_is_refused():
    with pytest.raises(UsageError, match=r"^random_share is 0.5"):
        MuZeroConfig(random_share=0.5)


def test_a_kind_of_network_that_does_not_suit_is_refused():
    grid = MuZero(dataclasses.replace(SMALL, network_kind="grid"))
    with pytest.raises(UsageError, match=r"network_kind is 'grid': it needs observations \[H, W, C\], .* are \(3,\)"):
        grid.make_agent(spec_of()).core.abstract_state()


def test_a_torso_is_used_for_pictures_too():
    agents = [
        MuZero(SMALL, torso=torso).make_agent(spec_of(specs.Array((5, 5, 2), np.float32))) for torso in (None, "flat")
    ]
    sizes = [{leaf.ndim for leaf in jax.tree.leaves(a.core.abstract_state().params)} for a in agents]
    assert 4 in sizes[0]
    assert 4 not in sizes[1]


@pytest.mark.parametrize("players", [1, 2])
def test_values_change_their_sign_in_the_tree_where_players_alternate(players, monkeypatch):
    found = []

    def search(config, keys, root, model, *_, **__):
        found.append(model(jnp.zeros(2, jnp.int32), root.state)[0].discount)

    monkeypatch.setattr(acting.search, "search", search)
    config = dataclasses.replace(SMALL, discount=0.9)
    fields = {"x": specs.Array((3,), np.float32), "action_mask": specs.BoundedArray((2,), bool, 0, 1)}
    fields |= {"player": specs.Array((), np.int32)} if players == 2 else {}
    network, seen = MuZero(config).make_networks(spec_of(fields)), zeros(fields, 2)
    params = network.init(jax.random.key(0), seen)
    acting.planner(network, config)(params, jax.random.split(jax.random.key(0), 2), seen, True)
    np.testing.assert_allclose(found[0], -0.9 if players == 2 else 0.9, rtol=1e-6)


def test_the_search_explores_in_training_only(monkeypatch):
    asked = []

    def plan(params, keys, observation, explore):
        asked.append(explore)
        ones = jnp.ones((len(keys), 2))
        return Searched(jnp.zeros(len(keys), jnp.int32), ones, ones[:, 0], ones, ones, ones, ())

    monkeypatch.setattr(acting.search, "nodes_of", lambda tree: ())
    context = Context(jax.random.split(jax.random.key(0), 3), jnp.int32(0), jnp.zeros(3), jnp.zeros(3))
    for evaluation in (False, True):
        acting.policy_of(plan, SMALL, evaluation=evaluation).apply({}, context, jnp.zeros((3, 3)), ())
    assert asked == [True, False]


@pytest.mark.parametrize("cut_sampled", [False, True])
def test_returns_end_at_sampled_moves_only_if_the_config_says_so(cut_sampled):
    batch = SimpleNamespace(extras=SimpleNamespace(own="own"))
    found = acting.own_steps(batch, dataclasses.replace(SMALL, cut_sampled=cut_sampled))
    assert found == ("own" if cut_sampled else None)
