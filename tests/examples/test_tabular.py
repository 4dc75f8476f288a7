"""SARSA and Q-learning with a table: their updates are the textbook's, and so is what comes of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spec_of
import tabular
from dm_env import specs

from acme_ext.types import Sample, Sequence

pytestmark = pytest.mark.usefixtures("no_figures")
SPEC = spec_of.discrete(3, (1,))._replace(observations=specs.BoundedArray((5,), np.bool_, False, True))


def step_of(observation, action, reward, discount, mask=1.0):
    """One step from a state to the next, as the replay gives it."""
    return Sequence(
        observation=jnp.eye(5, dtype=bool)[jnp.array(observation)][:, None],
        reward=jnp.array([[0.0], [reward]]),
        first=jnp.zeros((2, 1), bool),
        action=jnp.array([[action]]),
        discount=jnp.array([[discount]]),
        mask=jnp.array([[mask]]),
    )


def updated(builder, table, data):
    """The table after one step of learning, from a given one."""
    core = builder.make_agent(SPEC).core
    state = core.init(jax.random.key(0))
    params = jax.tree.map(lambda leaf: jnp.array(table), state.params)
    state, _, _ = core.step(state._replace(params=params), Sample(data, jnp.ones(1)))
    (leaf,) = jax.tree.leaves(state.params)
    return np.asarray(leaf)


TABLE = np.zeros((5, 3), np.float32)
TABLE[1, 2], TABLE[4] = 2.0, (-1.0, 5.0, 0.0)


def test_q_learning_by_hand():
    expected = TABLE.copy()
    expected[1, 2] = 2.0 + 0.5 * (-1.0 + 5.0 - 2.0)
    moved = updated(tabular.QLearning(), TABLE, step_of([1, 4], 2, -1.0, 1.0))
    np.testing.assert_allclose(moved, expected, rtol=1e-6)


@pytest.mark.parametrize(("epsilon", "values"), [(0.0, {5.0}), (1.0, {-1.0, 5.0, 0.0})])
def test_sarsa_looks_ahead_to_an_action_of_its_policy(epsilon, values):
    builder = tabular.Sarsa(tabular.Config(epsilon=epsilon))
    moved = updated(builder, TABLE, step_of([1, 4], 2, -1.0, 1.0))[1, 2]
    assert any(moved == pytest.approx(2.0 + 0.5 * (-1.0 + value - 2.0)) for value in values)
    q = jnp.tile(TABLE[4], (300, 1))
    drawn = tabular.sampled_next(q, epsilon, jax.random.key(1))
    assert set(np.unique(drawn).tolist()) == values


@pytest.mark.parametrize("builder", [tabular.Sarsa(), tabular.QLearning()], ids=["sarsa", "q_learning"])
def test_nothing_is_looked_ahead_to_after_the_end_and_the_way_to_a_new_episode_is_no_step(builder):
    assert updated(builder, TABLE, step_of([1, 4], 2, -1.0, 0.0))[1, 2] == pytest.approx(2.0 + 0.5 * (-1.0 - 2.0))
    np.testing.assert_array_equal(updated(builder, TABLE, step_of([1, 4], 2, 0.0, 0.0, mask=0.0)), TABLE)


@pytest.mark.release
def test_q_learning_falls_more_often_and_finds_the_shortest_path(tmp_path):
    builders = (tabular.Sarsa(), tabular.QLearning())
    results = {each.name: [tabular.train(each, 0, tmp_path, steps=10_000)] for each in builders}
    online = {name: tabular.online_returns(runs)[-150:].mean() for name, runs in results.items()}
    assert online["q_learning"] < online["sarsa"] - 5
    greedy = {name: runs[0].score.returns.mean() for name, runs in results.items()}
    assert greedy["q_learning"] == -13
    assert greedy["sarsa"] < -13
    assert tabular.draw(results, tmp_path / "cliff.png").stat().st_size > 5_000
