import dataclasses
import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spec_of import discrete

from acme_ext.agents.dqn import learning as dqn
from acme_ext.agents.rainbow import learning, losses, networks
from acme_ext.agents.rainbow.config import RainbowConfig
from acme_ext.agents.rainbow.networks import Prediction
from acme_ext.replay.config import TransitionConfig
from acme_ext.types import Sample, Transition

KEY = jax.random.key(0)
BATCH = Transition(
    observation=np.array([[1, 0], [0, 1]], np.float32),
    action=np.array([0, 1], np.int32),
    reward=np.array([0.5, -0.25], np.float32),
    discount=np.array([0.5, 0.9], np.float32),
    next_observation=np.array([[0, 1], [1, 0]], np.float32),
)
WEIGHT = np.array([0.5, 1.0], np.float32)
SAMPLE = Sample(BATCH, WEIGHT)
FIELDS = {"hidden_sizes": (8,), "num_atoms": 5, "v_min": -4.0, "v_max": 4.0, "num_quantiles": 4}
OFF = {
    "double": False,
    "dueling": False,
    "replay": TransitionConfig(),
    "distribution": "none",
    "noisy": False,
}


def core_of(**fields):
    config = RainbowConfig(**{**FIELDS, **fields})
    network = networks.make_network(discrete(3, (2,)), config)
    return learning.make_core(network, config, BATCH.observation[:1]), network, config


def apart(state):
    """The state with a target that is not the online network."""
    return state._replace(target_params=jax.tree.map(lambda leaf: 0.5 * leaf + 0.1, state.params))


@pytest.mark.parametrize("double", [pytest.param(False, marks=pytest.mark.release), True])
def test_the_loss_and_the_errors_are_the_kl(double):
    core, network, config = core_of(noisy=False, double=double)
    start = apart(core.init(KEY))
    _, metrics, errors = core.step(start, SAMPLE)
    tm1 = network.apply(start.params, None, BATCH.observation)
    t = network.apply(start.target_params, None, BATCH.next_observation)
    q = network.apply(start.params, None, BATCH.next_observation).q if double else t.q
    atoms = networks.support(config)
    probs = losses.categorical_double_q_target(BATCH.reward, BATCH.discount, t.values, q, atoms)
    each = losses.categorical_q_loss(tm1.values, BATCH.action, probs)
    np.testing.assert_allclose(metrics["loss"], np.mean(WEIGHT * each), rtol=1e-4)
    np.testing.assert_allclose(metrics["support_error"], 0, atol=1e-6)
    np.testing.assert_allclose(errors, each, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ["quantile", pytest.param("implicit", marks=pytest.mark.release)])
def test_priorities_of_quantiles_are_the_absolute_errors_of_the_means(distribution):
    # Without a key fractions are midpoints; the key's are others, so that implicit ones are compared by hand below.
    core, network, config = core_of(noisy=False, distribution=distribution)
    start = apart(core.init(KEY))
    _, metrics, errors = core.step(start, SAMPLE)
    if distribution == "quantile":
        tm1 = network.apply(start.params, None, BATCH.observation)
        t = network.apply(start.target_params, None, BATCH.next_observation)
        q = network.apply(start.params, None, BATCH.next_observation).q
        target = BATCH.reward + BATCH.discount * np.asarray(t.q)[[0, 1], np.argmax(q, axis=1)]
        error = np.abs(target - np.asarray(tm1.q)[[0, 1], BATCH.action])
        np.testing.assert_allclose(errors, error, rtol=1e-4)
        target = losses.quantile_double_q_target(BATCH.reward, BATCH.discount, t.values, q)
        each = losses.quantile_q_loss(tm1.values, tm1.taus, BATCH.action, target, config.quantile_kappa)
        np.testing.assert_allclose(metrics["loss"], np.mean(WEIGHT * each), rtol=1e-4)
    np.testing.assert_allclose(metrics["td_error_abs"], np.mean(errors), rtol=1e-4)


def test_a_support_that_is_too_narrow_is_told():
    core, _, _ = core_of(noisy=False, v_min=-0.125, v_max=0.125)
    _, metrics, _ = core.step(core.init(KEY), SAMPLE)
    # Targets near 0.5 and -0.25 that the support cuts to 0.125 and -0.125.
    np.testing.assert_allclose(metrics["support_error"], (0.375 + 0.125) / 2, atol=0.1)
    assert metrics["support_error"] > 0.1


def recording(config):
    """A network whose values are its random key, and the list of what it was given."""
    given = []

    def apply(params, key, observation):
        given.append((params, key))
        q = jnp.tile(params["w"], (observation.shape[0], 1)) * (1 + jax.random.uniform(key, (1, 3)))
        values = jnp.tile(q[..., None], (1, 1, config.num_atoms))
        return Prediction(q, values, jnp.zeros((observation.shape[0], config.num_quantiles)))

    return hk.Transformed(lambda key, observation: {"w": jnp.arange(3.0)}, apply), given


@pytest.mark.parametrize(
    "distribution",
    [
        pytest.param("none", marks=pytest.mark.release),
        "categorical",
        pytest.param("quantile", marks=pytest.mark.release),
    ],
)
@pytest.mark.parametrize("double", [pytest.param(False, marks=pytest.mark.release), True])
def test_every_pass_through_the_networks_has_a_noise_of_its_own(distribution, double):
    fields = {**FIELDS, "distribution": distribution, "double": double, "num_quantiles": 5}
    config = RainbowConfig(**fields)
    network, given = recording(config)
    core = learning.make_core(network, config, BATCH.observation[:1])
    state = core.init(KEY)
    for _ in range(2):
        with jax.disable_jit():
            state, _, _ = core.step(state, SAMPLE)
    keys = {tuple(jax.random.key_data(key).tolist()) for _, key in given}
    assert len(keys) == len(given) == 2 * (2 + double)


def test_with_all_six_off_it_is_dqn():
    core, network, config = core_of(**OFF)
    state = apart(core.init(KEY))
    theirs = dqn.make_core(networks.q_network(network), config, BATCH.observation[:1])
    for _ in range(2):
        after, metrics, errors = core.step(state, SAMPLE)
        expected, their_metrics, others = theirs.step(state, SAMPLE)
        close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
        jax.tree.map(close, (after.params, metrics, errors), (expected.params, their_metrics, others))
        state = after
    # Its network is DQN's too, with another name for its layers.
    plain = dqn_network()
    shapes = [sorted(leaf.shape for leaf in jax.tree.leaves(p)) for p in (state.params, plain)]
    assert shapes[0] == shapes[1]


def dqn_network():
    from acme_ext.agents.dqn.config import DQNConfig
    from acme_ext.agents.dqn.networks import make_network

    return make_network(discrete(3, (2,)), DQNConfig(hidden_sizes=(8,))).init(KEY, BATCH.observation)


@pytest.mark.slow
@pytest.mark.parametrize(
    "distribution",
    ["categorical", *(pytest.param(name, marks=pytest.mark.release) for name in ("none", "quantile", "implicit"))],
)
@pytest.mark.parametrize("noisy", [pytest.param(False, marks=pytest.mark.release), True])
def test_learns_the_values_of_a_chain(distribution, noisy):
    # Two states: in the first, action 1 earns 1 and leads to the second; there action 2 earns 2 and ends. All else ends
    # with nothing. So the best values are 1 + 0.5 * 2 = 2 and 2.
    observation = np.repeat(np.eye(2, dtype=np.float32), 3, axis=0)
    action = np.tile(np.arange(3, dtype=np.int32), 2)
    reward = np.array([0, 1, 0, 0, 0, 2], np.float32)
    discount = np.array([0, 0.5, 0, 0, 0, 0], np.float32)
    following = np.tile(np.array([[0, 1]], np.float32), (6, 1))
    batch = Sample(Transition(observation, action, reward, discount, following), np.ones(6, np.float32))
    fields = {"hidden_sizes": (32,), "num_atoms": 13, "v_min": -3.0, "v_max": 3.0, "num_quantiles": 8}
    core, network, _ = core_of(**fields, distribution=distribution, noisy=noisy, learning_rate=0.01, target_rate=0.1)
    state = core.init(KEY)
    steps = jax.jit(lambda state: jax.lax.scan(lambda s, _: (core.step(s, batch)[0], None), state, None, 500)[0])
    q = network.apply(steps(state).params, None, np.eye(2, dtype=np.float32)).q
    np.testing.assert_allclose(q, [[0, 2, 0], [0, 0, 2]], atol=0.25)


def test_the_default_config_is_the_published_agents_parts():
    fields = {field.name: getattr(RainbowConfig(), field.name) for field in dataclasses.fields(RainbowConfig)}
    assert all(fields[name] != value for name, value in OFF.items())
