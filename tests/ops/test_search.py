"""The search, over models whose values are known by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.errors import UsageError
from acme_ext.ops import masking, search
from acme_ext.ops.search import Root, SearchConfig, Step
from acme_ext.utils import compiling

GUMBEL = SearchConfig(simulations=24, value_scale=1.0)
PUCT = dataclasses.replace(GUMBEL, gumbel=False)
either = pytest.mark.parametrize(
    "config", [pytest.param(GUMBEL, id="gumbel"), pytest.param(PUCT, id="puct", marks=pytest.mark.release)]
)

# A tree of two steps and two actions: node 0 leads to 1 and 2, and these to 3, the end. Rewards by node and action.
REWARDS = jnp.array([[0.0, 0.4], [1.0, -1.0], [0.2, 0.1], [0.0, 0.0]])
NEXT = jnp.array([[1, 2], [3, 3], [3, 3], [3, 3]])
GAMMA = 0.5


def two_steps(action, node):
    step = Step(
        reward=REWARDS[node, action],
        discount=jnp.where(NEXT[node, action] == 3, 0.0, GAMMA),
        logits=jnp.zeros((len(action), 2)),
        value=jnp.zeros(len(action)),
    )
    return step, NEXT[node, action]


def nim(action, sticks):
    """Take one or two; who takes the last one wins. All of it is from the view of the player who moves."""
    left = sticks - 1 - action
    over = left <= 0
    legal = jnp.stack([left >= 1, left >= 2], axis=-1)
    step = Step(
        reward=jnp.where(left == 0, 1.0, 0.0),
        discount=jnp.where(over, 0.0, -1.0),
        logits=masking.masked(jnp.zeros((len(action), 2)), legal),
        value=jnp.zeros(len(action)),
    )
    return step, left


def from_nodes(config, model, nodes, legal=None, seed=0, explore=False):
    nodes = jnp.asarray(nodes)
    root = Root(jnp.zeros((len(nodes), 2)), jnp.zeros(len(nodes)), nodes)
    keys = jax.random.split(jax.random.key(seed), len(nodes))
    run = compiling.jit(lambda keys, root: search.search(config, keys, root, model, legal, explore=explore))
    return run(keys, root)


@either
def test_it_finds_the_best_way_through_a_tree(config):
    found = from_nodes(config, two_steps, [0, 1, 2])
    np.testing.assert_allclose(found.prior, 0.5)
    np.testing.assert_allclose(found.action_values[1], [1.0, -1.0])
    assert found.action.tolist()[1:] == [0, 0]
    np.testing.assert_allclose(np.sum(found.policy, -1), 1, rtol=1e-5)
    tree = found.tree
    # What follows the root's actions is worth 1 and 0.2; nu is a mean over visits, the first of which say 0.
    children = np.asarray(tree.children_values)[0, 0]
    assert 0.45 < children[0] < 1
    assert 0.15 < children[1] < 0.2
    assert 0.4 < found.value[0] < 0.5


@either
def test_two_players_values_change_their_sign(config):
    """By 3, 6, ... sticks the one who moves has lost; otherwise the best move leaves such a number."""
    found = from_nodes(dataclasses.replace(config, simulations=64), nim, [1, 2, 4, 5])
    assert found.action.tolist() == [0, 1, 0, 1]
    lost = from_nodes(dataclasses.replace(config, simulations=64), nim, [3])
    assert lost.value[0] < -0.8
    if not config.gumbel:  # which tries both actions as often
        assert (found.value > 0.7).all()


@either
def test_no_illegal_action_is_tried_at_any_depth(config):
    legal = jnp.array([[True, False], [True, True]])
    found = from_nodes(config, nim, [1, 4], legal, explore=True)
    visits, sticks = np.asarray(found.tree.children_visits), np.asarray(found.tree.embeddings)
    taken = np.asarray(found.tree.node_visits) > 0
    more = np.array([1, 2])
    assert not visits[(taken & (sticks > 0))[..., None] & (sticks[..., None] < more)].any()
    assert found.action[0] == 0
    assert found.policy[0, 1] == 0
    assert np.isfinite(found.policy).all()


@either
def test_a_row_does_not_depend_on_the_others(config):
    together = from_nodes(config, nim, [4, 5, 6, 7], explore=True)
    keys = jax.random.split(jax.random.key(0), 4)
    run = compiling.jit(lambda keys, root: search.search(config, keys, root, nim))
    for row, sticks in enumerate((4, 5, 6, 7)):
        root = Root(jnp.zeros((1, 2)), jnp.zeros(1), jnp.array([sticks]))
        alone = run(keys[row : row + 1], root)
        assert alone.action[0] == together.action[row]
        np.testing.assert_allclose(alone.policy[0], together.policy[row], rtol=1e-5)


def test_gumbel_noise_explores_where_nothing_is_known():
    def nothing(action, state):
        zeros = jnp.zeros(len(action))
        return Step(zeros, zeros, jnp.zeros((len(action), 2)), zeros), state

    found = from_nodes(dataclasses.replace(GUMBEL, simulations=4), nothing, [0] * 200, explore=True)
    assert 0.35 < np.mean(found.action) < 0.65
    np.testing.assert_allclose(found.policy, 0.5)  # what is learned is not the noise


def ignorant(action, state):
    zeros = jnp.zeros(len(action))
    return Step(zeros, zeros, jnp.zeros((len(action), 4)), zeros), state


def test_dirichlet_noise_is_over_the_legal_actions():
    rows, config = 500, dataclasses.replace(PUCT, simulations=1, dirichlet_alpha=1.0, dirichlet_share=0.5)
    root = Root(jnp.log(jnp.array([[0.6, 0.2, 0.1, 0.1]] * rows)), jnp.zeros(rows), jnp.zeros(rows))
    legal = jnp.array([[True, True, False, False]] * rows)
    keys = jax.random.split(jax.random.key(0), rows)
    prior = np.asarray(search.search(config, keys, root, ignorant, legal).prior)
    assert not prior[:, 2:].any()
    # Half of it is the prior over the legal actions, 0.75 and 0.25, and half is uniform in [0, 1].
    np.testing.assert_allclose(prior.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(prior[:, 0].mean(), 0.625, atol=0.03)
    assert prior[:, 0].min() < 0.39
    assert prior[:, 0].max() > 0.86


@pytest.mark.release
def test_without_exploring_the_same_position_is_the_same_search_in_all_rows():
    rows = 32
    root = Root(jnp.zeros((rows, 4)), jnp.zeros(rows), jnp.zeros(rows))
    keys = jax.random.split(jax.random.key(0), rows)
    found = search.search(dataclasses.replace(PUCT, simulations=6), keys, root, ignorant, explore=False)
    assert len(np.unique(np.asarray(found.visits), axis=0)) == 1
    assert len(np.unique(found.action)) == 1


def test_dirichlet_noise_is_a_quarter_of_the_roots_prior_where_it_explores(monkeypatch):
    class BegunError(Exception):
        """The search begins from this root."""

    def begin(*_, root, **__):
        raise BegunError(jax.nn.softmax(root.prior_logits))

    monkeypatch.setattr(search.load_mctx(), "search", begin)
    keys, prior = jax.random.split(jax.random.key(0), 100), {}
    root = Root(jnp.tile(jnp.log(jnp.array([0.8, 0.2])), (100, 1)), jnp.zeros(100), jnp.zeros(100, jnp.int32))
    for explore in (False, True):
        with pytest.raises(BegunError) as begun:
            search.search(PUCT, keys, root, two_steps, explore=explore)
        prior[explore] = np.asarray(begun.value.args[0])[:, 0]
    np.testing.assert_allclose(prior[False], 0.8, rtol=1e-5)
    assert 0.5999 < prior[True].min() < 0.63
    assert 0.82 < prior[True].max() < 0.8501


def test_visits_are_sampled_by_a_temperature():
    visits = jnp.broadcast_to(jnp.array([0.0, 0.2, 0.8]), (4_000, 3))
    keys = jax.random.split(jax.random.key(0), 4_000)
    assert (search.sample_visits(keys, visits, jnp.float32(0)) == 2).all()
    shares = np.bincount(search.sample_visits(keys, visits, jnp.float32(1)), minlength=3) / 4_000
    np.testing.assert_allclose(shares, [0, 0.2, 0.8], atol=0.03)
    shares = np.bincount(search.sample_visits(keys, visits, jnp.float32(0.5)), minlength=3) / 4_000
    np.testing.assert_allclose(shares, [0, 1 / 17, 16 / 17], atol=0.02)


@pytest.mark.parametrize(
    ("field", "value"),
    [("simulations", 0), ("considered_actions", 0), ("max_depth", 0), ("dirichlet_share", 1.5), ("value_scale", -1.0)],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(field, value):
    with pytest.raises(UsageError, match=f"^{field} is "):
        SearchConfig(**{field: value})
