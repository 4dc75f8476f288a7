import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.ops import intrinsic


def episode(embeddings, neighbours, **options):
    """The bonuses of one episode's embeddings [T, D], by our functions, the memory's rows as many as they."""
    memory, average, count, found = intrinsic.init_memory(1, len(embeddings), embeddings.shape[1]), 0.0, 0.0, []
    for t, embedding in enumerate(embeddings):
        squares, known = intrinsic.nearest_distances(memory, embedding[None], neighbours)
        moved, counted = intrinsic.moving_average(average, count, jnp.mean(squares), 1e9)
        average, count = (moved, counted) if bool(known[0]) else (average, count)
        bonus = intrinsic.kernel_bonus(squares, jnp.reshape(average, (1,)), **options)
        found.append(float(bonus[0]) if bool(known[0]) else 0.0)
        memory = intrinsic.remember(memory, embedding[None], np.array([t == 0]), squares)
    return np.array(found)


def naive(embeddings, k, kernel_epsilon=1e-4, cluster=8e-3, c=1e-3, most=8.0):
    """Algorithm 1 of Badia et al. 2020a in plain Python."""
    seen, distances, found = [], [], []
    for x in embeddings.astype(np.float64):
        bonus = 0.0
        if len(seen) >= k:
            nearest = np.sort([np.sum((x - y) ** 2) for y in seen])[:k]
            distances.append(nearest.mean())
            ratio = np.maximum(nearest / np.mean(distances) - cluster, 0)
            s = np.sqrt(np.sum(kernel_epsilon / (ratio + kernel_epsilon))) + c
            bonus = 0.0 if s > most else 1 / s
        found.append(bonus)
        seen.append(x)
    return np.array(found)


def test_kernel_bonus_by_hand():
    # d_m**2 = 2, so that the ratios are 0.5 and 2; less 0.5: 0 and 1.5; K = 1 and 0.5 / 2; s = sqrt(1.25) + 0.001.
    bonus = intrinsic.kernel_bonus(
        jnp.array([[1.0, 4.0]]), jnp.array([2.0]), kernel_epsilon=0.5, cluster_distance=0.5, pseudo_counts=1e-3
    )
    np.testing.assert_allclose(bonus, [1 / (1.25**0.5 + 1e-3)], rtol=1e-6)
    capped = intrinsic.kernel_bonus(jnp.zeros((1, 4)), jnp.array([2.0]), max_similarity=1.9)
    np.testing.assert_array_equal(capped, [0])  # s = 2.001
    same = intrinsic.kernel_bonus(jnp.zeros((1, 4)), jnp.zeros(1))  # nothing but one place was ever seen
    np.testing.assert_allclose(same, [1 / 2.001], rtol=1e-6)


@pytest.mark.parametrize(
    "k", [pytest.param(1, marks=pytest.mark.release), 3, pytest.param(10, marks=pytest.mark.release)]
)
def test_bonuses_of_an_episode_are_those_of_algorithm_1(k):
    rng = np.random.default_rng(k)
    embeddings = rng.normal(size=(40, 4)).astype(np.float32)
    embeddings[20:30] = embeddings[:10]  # places that are visited again
    np.testing.assert_allclose(episode(embeddings, k, kernel_epsilon=1e-2), naive(embeddings, k, 1e-2), rtol=2e-4)


def test_agrees_with_rlax_where_rlax_is_right(rlax):
    # It adds 1e-3 to the mean of negative distances, which is nothing beside these; and starts with k rows of zeros.
    k, size, rng = 3, 4, np.random.default_rng(0)
    embeddings = 100 * rng.normal(size=(12, size)).astype(np.float32)
    from rlax._src.exploration import IntrinsicRewardState

    state = IntrinsicRewardState(memory=jnp.full((64, size), jnp.inf).at[:k].set(0.0), next_memory_index=k)
    theirs = []
    for x in embeddings:
        reward, state = rlax.episodic_memory_intrinsic_rewards(x[None], k, 1.0, state, epsilon=1e-2, max_memory_size=64)
        theirs.append(float(reward[0]))
    ours = episode(np.concatenate([np.zeros((k, size), np.float32), embeddings]), k, kernel_epsilon=1e-2)[k:]
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)


def test_the_ring_overwrites_the_oldest_and_is_emptied():
    memory = intrinsic.init_memory(2, 3, 1)
    for t in range(4):
        memory = intrinsic.remember(memory, np.full((2, 1), float(t)), np.array([t == 0, t == 3]))
    np.testing.assert_array_equal(memory.written, [4, 1])
    np.testing.assert_array_equal(memory.embeddings[0, 0], [3, 1, 2])
    squares, known = intrinsic.nearest_distances(memory, np.array([[3.0], [3.0]]), 2)
    np.testing.assert_array_equal(known, [True, False])
    np.testing.assert_array_equal(squares, [[0, 1], [0, 0]])


@pytest.mark.parametrize("written", [[0, 3, 9], [5, 130, 256], [300, 301, 7]])
def test_the_nearest_of_a_ring_are_those_that_were_written(written):
    rng, written = np.random.default_rng(0), np.array(written, np.int32)
    memory = intrinsic.EpisodicMemory(rng.normal(size=(3, 4, 300)).astype(np.float32), written)
    embedding = rng.normal(size=(3, 4)).astype(np.float32)
    squares, known = intrinsic.nearest_distances(memory, embedding, 5)
    np.testing.assert_array_equal(known, written >= 5)
    for row in np.flatnonzero(known):
        rows = memory.embeddings[row, :, : written[row]].T
        np.testing.assert_allclose(squares[row], np.sort(np.sum((rows - embedding[row]) ** 2, axis=1))[:5], rtol=1e-5)
    # The memories of several runs at once.
    two = jax.tree.map(lambda x: np.stack([x, np.roll(x, 1, axis=0)]), memory)
    both, _ = jax.vmap(intrinsic.nearest_distances, (0, 0, None))(two, np.stack([embedding] * 2), 5)
    np.testing.assert_allclose(both[0], squares, rtol=1e-5)


def test_what_is_old_is_worth_less():
    embeddings = np.tile(np.eye(6, dtype=np.float32), (4, 1))
    found = episode(embeddings, 3)
    assert found[4] > 3 * found[-1]


def test_moving_average_is_the_mean_and_then_forgets():
    average, count = 0.0, 0.0
    for value in (1.0, 2.0, 6.0):
        average, count = intrinsic.moving_average(average, count, value, 3)
    assert float(average) == pytest.approx(3)
    average, count = intrinsic.moving_average(average, count, 9.0, 3)
    assert float(average) == pytest.approx(5)  # 3 + (9 - 3) / 3
    assert float(count) == 3


def test_distillation_error_and_lifelong_factor_by_hand():
    error = intrinsic.distillation_error(jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 2.0]]))
    np.testing.assert_allclose(error, [2.0])
    gradient = jax.grad(lambda t: intrinsic.distillation_error(jnp.ones(2), t))(jnp.zeros(2))
    np.testing.assert_array_equal(gradient, [0, 0])
    # 1 + (7 - 3) / 2 = 3;  below the mean 1;  at most 5.
    factor = intrinsic.lifelong_factor(jnp.array([7.0, 1.0, 99.0]), 3.0, 2.0, 5.0)
    np.testing.assert_allclose(factor, [3, 1, 5])


def test_running_returns_by_hand():
    sums = intrinsic.running_returns(jnp.array([[1.0], [2.0]]), jnp.array([[0.5], [1.0]]), jnp.array([4.0]))
    np.testing.assert_allclose(sums, [[3.0], [5.0]])


def test_a_continuing_bonus_goes_on_over_an_episodes_end():
    # Timesteps 0 1 2 | 3 4: the step from 2, an episode's last, to 3, the next one's first, is none.
    bonus, mask = jnp.array([[1.0, 2.0, 9.0, 4.0]]).T, jnp.array([[1.0, 1.0, 0.0, 1.0]]).T
    first = jnp.array([[True, False, False, True, False]]).T
    values = jnp.array([[10.0, 20.0, 30.0, 40.0, 50.0]]).T
    got = intrinsic.continuing_advantages(bonus, 0.5, 0.5, values, mask, first)
    # delta: 1 + 0.5 * 20 - 10 = 1;  2 + 0.5 * 40 - 20 = 2, to the first of the next;  4 + 0.5 * 50 - 40 = -11.
    # A_3 = -11;  A_1 = 2 + 0.25 * -11;  A_0 = 1 + 0.25 * A_1.
    np.testing.assert_allclose(got[:, 0], [1 + 0.25 * -0.75, -0.75, 0, -11])
    # The same without an episode's end, the last observation left out.
    keep = np.array([0, 1, 3])
    same = intrinsic.continuing_advantages(
        bonus[keep], 0.5, 0.5, values[np.array([0, 1, 3, 4])], jnp.ones((3, 1)), jnp.zeros((4, 1), bool)
    )
    np.testing.assert_allclose(same[:, 0], got[keep, 0])
    # After padding, which begins no episode, nothing is known.
    padded = intrinsic.continuing_advantages(bonus, 0.5, 0.5, values, mask.at[2:].set(0), jnp.zeros((5, 1), bool))
    np.testing.assert_allclose(padded[:, 0], [1 + 0.25 * -3, 2 + 0.5 * 30 - 20, 0, 0])
