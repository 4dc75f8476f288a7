import dataclasses

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from spec_of import discrete

from acme_ext.agents.dqn import learning, networks
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.types import Sample, Transition

KEY = jax.random.key(0)
OBSERVATION = np.zeros((1, 2), np.float32)


def table():
    """Values linear in the observation, all zero at first: three actions of two features."""
    return hk.transform(lambda observation: hk.Linear(3, with_bias=False, w_init=jnp.zeros)(observation))


def core_of(network=None, **fields):
    fields = {"learning_rate": 0.1, "target_period": 1, "target_rate": 1.0, **fields}
    return learning.make_core(network or table(), DQNConfig(**fields), OBSERVATION)


def weights(state):
    ((_, leaves),) = state.params.items()
    return np.asarray(leaves["w"])


def with_weights(state, online, target):
    """The state with the parameters `[2, 3]` of both networks."""

    def put(params, w):
        ((layer, _),) = params.items()
        return {layer: {"w": jnp.asarray(w, jnp.float32)}}

    return state._replace(params=put(state.params, online), target_params=put(state.target_params, target))


ONLINE = [[1.0, 3.0, 2.0], [0.0, 5.0, 6.0]]
TARGET = [[2.0, 4.0, 8.0], [1.0, 2.0, 3.0]]
BATCH = Transition(
    observation=np.array([[1, 0], [0, 1]], np.float32),
    action=np.array([0, 1], np.int32),
    reward=np.array([1.0, -1.0], np.float32),
    discount=np.array([0.5, 0.9], np.float32),
    next_observation=np.array([[0, 1], [1, 0]], np.float32),
)
WEIGHT = np.array([0.5, 1.0], np.float32)
SAMPLE = Sample(BATCH, WEIGHT)


@pytest.mark.parametrize(
    ("double", "errors"),
    [
        # The online best of the next observations are actions 2 and 1, of which the target says 3 and 4:
        # 1 + 0.5 * 3 - 1 = 1.5 and -1 + 0.9 * 4 - 5 = -2.4.
        (True, [1.5, -2.4]),
        # The target's own best are 3 and 8: 1 + 0.5 * 3 - 1 = 1.5 and -1 + 0.9 * 8 - 5 = 1.2.
        (False, [1.5, 1.2]),
    ],
)
@pytest.mark.parametrize("huber_delta", [None, 1.0])
def test_a_step_by_hand(double, errors, huber_delta):
    core = core_of(double=double, huber_delta=huber_delta)
    state, metrics, given = core.step(with_weights(core.init(KEY), ONLINE, TARGET), SAMPLE)
    errors = np.array(errors)
    np.testing.assert_allclose(given, np.abs(errors), rtol=1e-5)
    np.testing.assert_allclose(metrics["td_error_abs"], np.mean(np.abs(errors)), rtol=1e-5)
    np.testing.assert_allclose(metrics["q_mean"], (1 + 3 + 2 + 0 + 5 + 6) / 6, rtol=1e-6)
    each = errors**2 / 2 if huber_delta is None else np.abs(errors) - 0.5
    np.testing.assert_allclose(metrics["loss"], np.mean(WEIGHT * each), rtol=1e-5)
    # The gradient is that of the chosen actions' values alone, -weight * error / 2; Adam's first step is its sign.
    slope = errors if huber_delta is None else np.sign(errors)
    np.testing.assert_allclose(metrics["gradient_norm"], np.linalg.norm(WEIGHT * slope / 2), rtol=1e-5)
    expected = np.array(ONLINE)
    expected[0, 0] += 0.1 * np.sign(errors[0])
    expected[1, 1] += 0.1 * np.sign(errors[1])
    np.testing.assert_allclose(weights(state), expected, rtol=1e-5)


@pytest.mark.parametrize(("period", "rate"), [(2, 1.0), (1, 0.5)])
def test_the_target_follows_as_the_config_says(period, rate):
    core = core_of(target_period=period, target_rate=rate)
    state = core.init(KEY)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), state.params, state.target_params))
    target = np.zeros((2, 3))
    for step in range(1, 5):
        state, _, _ = core.step(state, SAMPLE)
        if step % period == 0:
            target = rate * weights(state) + (1 - rate) * target
        np.testing.assert_allclose(state.target_params["linear"]["w"], target, rtol=1e-5, atol=1e-7)
    assert target.any()


def test_the_gradients_norm_is_bounded():
    config = DQNConfig(learning_rate=0.1, max_gradient_norm=1.0)
    params = {"a": jnp.zeros(()), "b": jnp.zeros(())}
    gradient = {"a": jnp.float32(30.0), "b": jnp.float32(40.0)}

    def moments(config):
        optimizer = learning.make_optimizer(config)
        _, state = optimizer.update(gradient, optimizer.init(params), params)
        (adam,) = (
            s
            for s in jax.tree.leaves(state, is_leaf=lambda s: isinstance(s, optax.ScaleByAdamState))
            if isinstance(s, optax.ScaleByAdamState)
        )
        return 10 * adam.mu["a"], 10 * adam.mu["b"]  # Adam's first average of gradients holds a tenth of it

    np.testing.assert_allclose(moments(config), [0.6, 0.8], rtol=1e-5)
    np.testing.assert_allclose(moments(dataclasses.replace(config, max_gradient_norm=None)), [30, 40], rtol=1e-5)
    np.testing.assert_allclose(moments(dataclasses.replace(config, max_gradient_norm=100.0)), [30, 40], rtol=1e-5)


def test_rmsprop_is_centered():
    # One gradient g from averages of zero: m = 0.1 g, v = 0.1 g**2, so the step is -lr g / sqrt(v - m**2 + eps).
    config = DQNConfig(
        optimizer="rmsprop", learning_rate=0.5, rmsprop_decay=0.9, rmsprop_epsilon=0.07, max_gradient_norm=4.0
    )
    optimizer = learning.make_optimizer(config)
    params = {"a": jnp.zeros(())}
    update, state = optimizer.update({"a": jnp.float32(-10.0)}, optimizer.init(params), params)
    np.testing.assert_allclose(update["a"], 0.5 * 4 / np.sqrt(1.6 - 0.16 + 0.07), rtol=1e-5)
    # The second time: m = 0.09 g + 0.1 h, v = 0.09 g**2 + 0.1 h**2.
    update, _ = optimizer.update({"a": jnp.float32(2.0)}, state, params)
    variance = 0.09 * 16 + 0.1 * 4 - (0.09 * -4 + 0.1 * 2) ** 2
    np.testing.assert_allclose(update["a"], -0.5 * 2 / np.sqrt(variance + 0.07), rtol=1e-5)


def test_learns_the_values_of_a_chain():
    # Two states: in the first, action 1 earns 1 and leads to the second; there action 2 earns 2 and ends. All else ends
    # with nothing. So the best values are 1 + 0.5 * 2 = 2 and 2.
    observation = np.repeat(np.eye(2, dtype=np.float32), 3, axis=0)
    action = np.tile(np.arange(3, dtype=np.int32), 2)
    reward = np.array([0, 1, 0, 0, 0, 2], np.float32)
    discount = np.array([0, 0.5, 0, 0, 0, 0], np.float32)
    following = np.tile(np.array([[0, 1]], np.float32), (6, 1))
    batch = Sample(Transition(observation, action, reward, discount, following), np.ones(6, np.float32))
    core = core_of(learning_rate=0.05, target_rate=0.1)
    state, step = core.init(KEY), jax.jit(core.step)
    for _ in range(400):
        state, metrics, _ = step(state, batch)
    np.testing.assert_allclose(weights(state), [[0, 2, 0], [0, 0, 2]], atol=0.05)
    assert metrics["loss"] < 1e-3


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("shape", [(4,), (36, 36, 3)])
def test_the_network_gives_a_value_for_each_action(dueling, shape):
    config = DQNConfig(dueling=dueling, hidden_sizes=(16, 8), image_features=24)
    network = networks.make_network(discrete(5, shape), config)
    observation = np.zeros((2, *shape), np.float32)
    params = network.init(KEY, observation)
    q = network.apply(params, None, observation)
    assert q.shape == (2, 5)
    assert any("dueling" in name for name in params) == dueling
    # A dueling head has two hidden layers of its own: as wide as what is before it, or right behind the convolutions.
    widths = [leaf.shape for leaf in jax.tree.leaves(params) if leaf.ndim == 2]
    if len(shape) == 3:
        (features,) = {n for n, width in widths if width == 24}
        assert widths.count((features, 24)) == 1 + dueling
        assert (24, 24) not in widths
    else:
        assert widths.count((8, 8)) == 2 * dueling
