import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.networks.recurrent import LSTM, LSTMState, lstm

SIZE, FEATURES = 5, 3
NETWORK = hk.without_apply_rng(hk.transform(lambda x, first, state: LSTM(SIZE)(x, first, state)))


@pytest.fixture(scope="module")
def params():
    return NETWORK.init(
        jax.random.key(0), jnp.zeros((1, 1, FEATURES)), jnp.ones((1, 1), bool), lstm(SIZE).init_state(1)
    )


def sequence(steps: int, batch: int = 2):
    rng = np.random.default_rng(steps)
    x = rng.normal(size=(steps, batch, FEATURES)).astype(np.float32)
    state = LSTMState(*rng.normal(size=(2, batch, SIZE)).astype(np.float32))
    return x, rng.random((steps, batch)) < 0.3, state


def by_hand(params, x, first, state):
    """The equations, step by step."""
    linear, own = params["lstm/linear/linear"], params["lstm"]
    w, b, u = (np.asarray(leaf, np.float64) for leaf in (linear["w"], linear["b"], own["recurrent"]))
    sigmoid = lambda y: 1 / (1 + np.exp(-y))  # noqa: E731
    h, c = (np.asarray(leaf, np.float64) for leaf in state)
    outputs = []
    for now, begins in zip(x, first, strict=True):
        h, c = (np.where(begins[:, None], 0, leaf) for leaf in (h, c))
        i, f, g, o = np.split(now @ w + b + h @ u, 4, axis=-1)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs), LSTMState(h, c)


@pytest.mark.parametrize("steps", [1, 3, 4, 9])
def test_equals_the_equations(params, steps):
    x, first, state = sequence(steps)
    outputs, after = jax.jit(NETWORK.apply)(params, x, first, state)
    expected, expected_after = by_hand(params, x, first, state)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after.hidden, expected_after.hidden, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after.cell, expected_after.cell, rtol=1e-5, atol=1e-6)


def test_a_sequence_in_parts_is_the_whole(params):
    x, first, state = sequence(7)
    whole, end = NETWORK.apply(params, x, first, state)
    part, state = NETWORK.apply(params, x[:3], first[:3], state)
    rest, state = NETWORK.apply(params, x[3:], first[3:], state)
    np.testing.assert_allclose(jnp.concatenate([part, rest]), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state.cell, end.cell, rtol=1e-5, atol=1e-6)


def test_nothing_of_an_episode_reaches_the_next(params):
    x, _, state = sequence(6)
    first = np.zeros((6, 2), bool)
    first[3, 0] = True

    def later(x, state):
        return jnp.sum(NETWORK.apply(params, x, first, state)[0][3:], axis=(0, 2))

    of_x, of_state = jax.jacobian(later, (0, 1))(x, state)
    assert not of_x[0, :3].any()
    assert not of_state.cell[0].any()
    assert of_x[1, :3, 1].any()
    assert of_state.cell[1, 1].any()
    assert not of_x[0, :, 1].any()  # nor does one environment reach another
