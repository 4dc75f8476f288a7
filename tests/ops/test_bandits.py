import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.errors import UsageError
from acme_ext.ops import bandits
from acme_ext.utils import trees


def keys(seed, batch):
    return jax.random.split(jax.random.key(seed), batch)


def play(bandit, means, steps, batch=100, seed=0, rewards=None):
    """Plays Bernoulli arms; returns the arms [steps, batch]. `means` are [K], or [steps, K] of arms that drift."""
    means = jnp.broadcast_to(jnp.asarray(means, jnp.float32), (steps, np.shape(means)[-1]))

    def step(state, now):
        time, mean = now
        select, reward = (jax.random.split(jax.random.fold_in(jax.random.key(seed + i), time), batch) for i in range(2))
        arm = bandit.select(select, state)
        uniform = jax.vmap(jax.random.uniform)(reward)
        return bandit.update(state, arm, (uniform < mean[arm]).astype(jnp.float32)), arm

    _, arms = jax.lax.scan(step, jax.tree.map(jnp.asarray, bandit.init(batch)), (jnp.arange(steps), means))
    return np.asarray(arms)


def regret(arms, means):
    means = np.asarray(means)
    return (means.max() - means[arms]).sum(axis=0)


def test_ucb1_by_hand():
    bandit = bandits.ucb1(2)
    state = bandit.init(1)
    for arm, reward in ((0, 1.0), (1, 0.0), (0, 0.0)):
        state = bandit.update(state, np.array([arm]), np.array([reward]))
    # 0.5 + sqrt(2 ln 3 / 2) = 1.548 beside 0 + sqrt(2 ln 3 / 1) = 1.482
    np.testing.assert_array_equal(bandit.select(keys(0, 1), state), [0])
    state = bandit.update(state, np.array([0]), np.array([0.0]))
    # 1/3 + sqrt(2 ln 4 / 3) = 1.295 beside sqrt(2 ln 4) = 1.665
    np.testing.assert_array_equal(bandit.select(keys(0, 1), state), [1])


@pytest.mark.parametrize(
    "bandit", [bandits.ucb1(3), bandits.sliding_window_ucb(3, 10, epsilon=0.5), bandits.epsilon_greedy(3, 0.0)]
)
def test_every_arm_is_played_once_first(bandit):
    state, arms = bandit.init(2), []
    for _ in range(3):
        arm = bandit.select(keys(1, 2), state)
        arms.append(np.asarray(arm))
        state = bandit.update(state, arm, np.zeros(2, np.float32))
    np.testing.assert_array_equal(np.sort(np.stack(arms), axis=0), [[0, 0], [1, 1], [2, 2]])


def test_the_window_forgets():
    bandit = bandits.sliding_window_ucb(2, window=3, scale=1.0)
    state = bandit.init(1)
    for arm, reward in ((1, 9.0), (0, 1.0), (0, 2.0), (1, 4.0)):
        state = bandit.update(state, np.array([arm]), np.array([reward], np.float32))
    counts = bandits.in_window(state, 2)
    np.testing.assert_array_equal(counts.plays, [[2, 1]])
    np.testing.assert_array_equal(counts.total, [[3, 4]])  # the 9 is forgotten
    # 1.5 + sqrt(1 / 2) beside 4 + sqrt(1 / 1).
    np.testing.assert_array_equal(bandit.select(keys(0, 1), state), [1])
    for _ in range(3):
        state = bandit.update(state, np.array([1]), np.array([100.0], np.float32))
    np.testing.assert_array_equal(bandit.select(keys(0, 1), state), [0])  # no play of it is in the window


def test_exp3_by_hand():
    bandit = bandits.exp3(2, gamma=0.5)
    state = bandit.update(bandit.init(1), np.array([1]), np.array([1.0]))
    # p = 1/2, so that w_1 = exp(0.5 * (1 / 0.5) / 2) = exp(0.5) beside 1.
    np.testing.assert_allclose(state.log, [[-0.5, 0.0]], atol=1e-6)
    draws = np.mean(bandit.select(keys(0, 20_000), jax.tree.map(lambda x: jnp.repeat(x, 20_000, 0), state)))
    weight = np.exp(0.5) / (1 + np.exp(0.5))
    assert draws == pytest.approx(0.5 * weight + 0.25, abs=0.01)


def test_epsilon_greedy_explores_as_often_as_it_says():
    bandit = bandits.epsilon_greedy(4, 0.4)
    state = bandits.Counts(np.ones((20_000, 4), np.float32), np.tile(np.float32([0, 1, 0, 0]), (20_000, 1)))
    share = np.mean(np.asarray(bandit.select(keys(0, 20_000), state)) == 1)
    assert share == pytest.approx(0.6 + 0.4 / 4, abs=0.015)


def test_thompson_by_hand(monkeypatch):
    """With means for samples: of Beta(10, 4) and of Beta(6, 8), each beside an arm that was never played."""
    monkeypatch.setattr(jax.random, "beta", lambda key, a, b: a / (a + b))
    state = bandits.Counts(np.float32([[12, 0], [12, 0]]), np.float32([[9, 0], [5, 0]]))
    np.testing.assert_array_equal(bandits.thompson(2).select(keys(0, 2), state), [0, 1])


MEANS = (0.9, 0.8, 0.5)


def test_ucb1_keeps_its_bound():
    steps, gaps = 2_000, np.array([0.1, 0.4])
    bound = 8 * np.sum(np.log(steps) / gaps) + (1 + np.pi**2 / 3) * gaps.sum()
    found = regret(play(bandits.ucb1(3), MEANS, steps), MEANS).mean()
    assert 10 < found < bound


def test_exp3_keeps_its_bound():
    steps, arms = 2_000, 3
    gamma = min(1.0, np.sqrt(arms * np.log(arms) / ((np.e - 1) * steps)))
    found = regret(play(bandits.exp3(arms, gamma), MEANS, steps), MEANS).mean()
    assert 10 < found < 2.63 * np.sqrt(steps * arms * np.log(arms))


@pytest.mark.release
def test_thompson_has_less_regret_than_the_others():
    found = regret(play(bandits.thompson(3), MEANS, 2_000), MEANS).mean()
    assert found < 0.5 * regret(play(bandits.ucb1(3), MEANS, 2_000), MEANS).mean()


def test_a_window_follows_the_best_arm_where_means_do_not():
    drift = np.repeat([[0.9, 0.1], [0.1, 0.9]], 1_000, axis=0)
    late = slice(1_200, None)  # the arms were exchanged at 1,000
    share = (play(bandits.sliding_window_ucb(2, 100, 0.5), drift, 2_000)[late] == 1).mean()
    assert share > 0.85
    assert share > (play(bandits.epsilon_greedy(2, 0.1), drift, 2_000)[late] == 1).mean() + 0.1


def test_only_the_chosen_take_a_step():
    bandit = bandits.sliding_window_ucb(3, 4)
    old = bandit.init(2)
    new = trees.select(np.array([True, False]), bandit.update(old, np.array([2, 2]), np.ones(2, np.float32)), old)
    np.testing.assert_array_equal(new.plays, [1, 0])
    np.testing.assert_array_equal(new.arm[1], old.arm[1])


@pytest.mark.parametrize(
    "make",
    [lambda: bandits.ucb1(0), lambda: bandits.sliding_window_ucb(3, 2), lambda: bandits.exp3(3, 0.0)],
)
def test_what_can_be_no_bandit_is_refused(make):
    with pytest.raises(UsageError):
        make()
