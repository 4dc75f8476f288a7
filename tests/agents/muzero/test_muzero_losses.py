import dataclasses

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.acting.policy import Context
from acme_ext.agents.muzero import acting, losses
from acme_ext.agents.muzero.config import MuZeroConfig
from acme_ext.ops.distributional import Support
from acme_ext.ops.search import SearchConfig, Searched
from acme_ext.replay.sequences import UnrollStore
from acme_ext.replay.unrolls import Cut
from acme_ext.types import Sequence


def columns(*rows):
    """Arrays `[T, 1]`."""
    return [jnp.array(row, jnp.float32)[:, None] for row in rows]


def test_values_of_two_players_are_those_of_the_one_who_moves():
    # Three moves; the one who makes the last, the first player, wins.
    r_t, discount, v_t, mask = columns([0, 0, 1], [1, 1, 0], [9, 9, 9], [1, 1, 1])
    player = jnp.array([1, 0, 1, 0])[:, None]
    signed = losses.signed_discounts(discount, {"action_mask": jnp.ones((4, 1, 2)), "player": player})
    assert signed[:, 0].tolist() == [-1, -1, 0]
    assert losses.value_targets(r_t, signed, v_t, mask, None)[:, 0].tolist() == [1, -1, 1]
    assert losses.value_targets(r_t, signed, v_t, mask, 1)[:, 0].tolist() == [-9, -9, 1]
    # A player who moves twice keeps the sign.
    twice = losses.signed_discounts(discount, {"action_mask": 0, "player": jnp.array([1, 1, 0, 0])[:, None]})
    assert losses.value_targets(r_t, twice, v_t, mask, None)[:, 0].tolist() == [-1, -1, 1]
    assert losses.signed_discounts(discount, jnp.zeros((4, 1, 3))) is discount


def test_a_sampled_move_says_nothing_of_what_was_before_it():
    # The third of four moves is a mistake, which loses.
    r_t, discount, v_t, v_tm1, mask, own = columns(
        [0, 0, 0, 1], [-1, -1, -1, 0], [2, 3, 4, 9], [1, 2, 3, 4], [1, 1, 1, 1], [1, 1, 0, 1]
    )
    assert losses.value_targets(r_t, discount, v_t, mask, None)[:, 0].tolist() == [-1, 1, -1, 1]
    # Before it the value there counts, of the one whose move it was; its own is not learned.
    assert losses.value_targets(r_t, discount, v_t, mask, None, own, v_tm1)[:, 0].tolist() == [3, -3, 3, 1]
    assert losses.value_targets(r_t, discount, v_t, mask, 1, own, v_tm1)[:, 0].tolist() == [-2, -3, 3, 1]
    found = losses.value_targets(r_t, discount, v_t, mask, None, jnp.ones_like(own), v_tm1)
    assert found[:, 0].tolist() == [-1, 1, -1, 1]


@pytest.mark.parametrize("n_step", [None, 1, 3])
def test_a_game_that_is_cut_has_no_first_error_if_the_values_of_both_players_agree(n_step):
    # The first player is ahead by 0.8, whoever moves; what is known last is the value of the one who moved then.
    player = jnp.array([0, 1, 0, 1, 0, 1])[:, None]
    nu = jnp.where(player[:-1] == 0, 0.8, -0.8)
    own, mask = jnp.ones((5, 1)), jnp.ones((5, 1))
    batch = Sequence(
        observation={"action_mask": jnp.ones((6, 1, 2)), "player": player},
        action=jnp.zeros((5, 1), jnp.int32),
        reward=jnp.zeros((6, 1)),
        discount=jnp.ones((5, 1)),
        first=jnp.zeros((6, 1), bool),
        mask=mask,
        extras=acting.Planned(jnp.ones((5, 1, 2)) / 2, nu, own),
    )
    errors = acting.first_error(batch, MuZeroConfig(n_step=n_step))
    np.testing.assert_allclose(errors, 0, atol=1e-6)


def test_n_step_values_are_discounted():
    r_t, discount, v_t, mask = columns([1, 2, 4, 8], [0.5] * 4, [10, 20, 30, 40], [1, 1, 1, 1])
    z = losses.value_targets(r_t, discount, v_t, mask, 2)[:, 0].tolist()
    assert z == [1 + 1 + 5, 2 + 2 + 7.5, 4 + 4 + 10, 8 + 20]


def targets_of(discount, mask, roots, unroll=3):
    steps = len(mask)
    z, r_t, discount, mask = columns(np.arange(steps) + 10, np.arange(steps) + 1, discount, mask)
    policy = jnp.arange(steps, dtype=jnp.float32)[:, None, None] * jnp.ones((steps, 1, 2))
    return losses.targets_at(jnp.array(roots)[:, None], policy, z, r_t, discount, mask, unroll)


def test_a_value_prefix_has_the_rewards_since_the_root():
    targets = targets_of(np.ones(5), np.ones(5), roots=[0, 1], unroll=2)  # the rewards are 1 to 5
    np.testing.assert_array_equal(losses.value_prefixes(targets.reward), [[1, 2], [3, 5]])


def test_after_a_termination_the_state_is_absorbing():
    t = targets_of([1, 1, 0, 0], [1, 1, 1, 0], [1, 2])
    assert t.value.T.tolist() == [[11, 12, 0, 0], [12, 0, 0, 0]]
    assert t.known.T.tolist() == [[1, 1, 1, 1], [1, 1, 1, 1]]
    assert t.reward.T.tolist() == [[2, 3, 0], [3, 0, 0]]
    assert t.acted.T.tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]
    assert t.policy[:2, 0, 0].tolist() == [1, 2]


def test_after_a_truncation_nothing_is_known():
    t = targets_of([1, 1, 1, 0], [1, 1, 1, 0], [1])
    assert t.known.T.tolist() == [[1, 1, 0, 0]]  # also the rewards of the steps from there
    assert t.reward[:2].T.tolist() == [[2, 3]]
    full = targets_of([1, 1, 1, 1], [1, 1, 1, 1], [2])  # the sequence's end
    assert full.known.T.tolist() == [[1, 1, 0, 0]]


def test_the_loss_is_the_sum_of_its_parts():
    support = Support(1, None)
    targets = losses.Targets(
        policy=jnp.array([[[1.0, 0.0]], [[0.5, 0.5]], [[0.5, 0.5]]]),
        value=jnp.array([[1.0], [0.5], [0.0]]),
        reward=jnp.array([[0.0], [-1.0]]),
        acted=jnp.array([[1.0], [1.0], [0.0]]),
        known=jnp.array([[1.0], [0.0], [1.0]]),
    )
    costs = losses.unrolled_costs(jnp.zeros((3, 1, 2)), jnp.zeros((3, 1, 3)), jnp.zeros((2, 1, 3)), targets, support)
    log3 = np.log(3)
    np.testing.assert_allclose(costs.policy, np.log(2), rtol=1e-6)  # no KL from what is uniform
    np.testing.assert_allclose(costs.value, log3 + log3 / 2, rtol=1e-6)
    np.testing.assert_allclose(costs.reward, log3 / 2, rtol=1e-6)


@pytest.mark.parametrize("terminates", [True, False])
def test_every_state_of_every_episode_is_a_root_about_once(terminates):
    """Also those of short tails; the observation says which state it is."""
    own, after, rng = 4, 5, np.random.default_rng(0)
    store = UnrollStore(1, Cut(length=own + after, period=own, discount=0.9, cross_episodes=False))
    seen, states = [], 0

    def timestep(kind, discount, state):
        one = np.ones(1, np.float32)
        return dm_env.TimeStep(np.full(1, kind, np.uint8), 0 * one, discount * one, np.full((1, 1), state, np.int32))

    first = timestep(0, 1, 0)
    store.begin(first)
    for length in rng.integers(1, 30, size=40):
        for step in range(1, length + 1):
            last = step == length
            now = timestep(2 if last else 1, 0.0 if last and terminates else 1.0, states + step)
            found = store.step(np.zeros(1, np.int32), now)
            seen += [] if found is None else [found]
        states += length + 1
        store.step(np.zeros(1, np.int32), timestep(0, 1, states))
    weights = np.zeros(states + 1)
    for item in seen:
        w = losses.root_weights(item.mask.T, item.discount.T, own)[:, 0]
        np.add.at(weights, item.observation[0, :-1, 0], w)
    lengths = np.random.default_rng(0).integers(1, 30, size=40)
    ends = np.cumsum(lengths + 1) - 1  # the last observations: nothing is done there
    roots = np.delete(weights[:states], ends)
    assert weights[ends].sum() == 0
    # A truncation in a sequence's very last step is not known from an episode that goes on.
    assert roots.min() >= (1 if terminates else 0.1) - 1e-6
    assert np.mean(roots > 0.99) > 0.9
    assert roots.max() < 1.5


def test_the_temperature_falls_in_two_steps():
    config = MuZeroConfig(temperature_steps=100)
    assert [float(acting.temperature(jnp.int32(s), config)) for s in (0, 49, 50, 74, 75, 10**6)] == [
        1,
        1,
        0.5,
        0.5,
        0.25,
        0.25,
    ]


@pytest.mark.parametrize("gumbel", [True, False])
def test_first_moves_are_sampled_and_later_ones_are_the_best(gumbel):
    def plan(params, keys, observation, explore):
        visits = jnp.broadcast_to(jnp.array([0.5, 0.5, 0.0]), (len(keys), 3))
        return Searched(jnp.full(len(keys), 2), visits, jnp.zeros(len(keys)), visits, visits, visits, ())

    config, count = MuZeroConfig(sampled_moves=2, search=SearchConfig(gumbel=gumbel)), 100
    policy = acting.policy_of(plan, config, evaluation=False)
    context = Context(jax.random.split(jax.random.key(0), count), jnp.int32(0), jnp.zeros(count), jnp.zeros(count))
    state = policy.init_state(count)
    for move in range(4):
        action, state, extras = policy.apply({}, context, jnp.zeros((count, 1)), state)
        assert set(np.asarray(action)) == ({0, 1} if move < 2 else {2})
        assert (extras.own == (move >= 2)).all()
    # Some of the sampled moves are any, but legal.
    policy = acting.policy_of(plan, dataclasses.replace(config, random_share=1.0), evaluation=False)
    seen = {"board": jnp.zeros((count, 1)), "action_mask": jnp.tile(jnp.array([False, True, True]), (count, 1))}
    action, _, extras = policy.apply({}, context, seen, policy.init_state(count))
    assert set(np.asarray(action)) == {1, 2}
    assert (extras.own == (action == 2)).all()
    assert acting.policy_of(plan, config, evaluation=True).init_state(3) == ()
