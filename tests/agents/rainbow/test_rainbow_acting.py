import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.acting.policy import Context
from acme_ext.agents.dqn.learning import PolicyVariables
from acme_ext.agents.rainbow import acting, networks
from acme_ext.agents.rainbow.config import RainbowConfig

COUNT = 500
OBSERVATION = np.zeros((COUNT, 4), np.float32)


def build(evaluation=False, **fields):
    config = RainbowConfig(**{"hidden_sizes": (16,), "num_atoms": 5, "num_quantiles": 4, **fields})
    network = networks.make_network(4, config)
    params = PolicyVariables(network.init(jax.random.key(0), OBSERVATION[:1]), jnp.float32(3.5))
    policy = (acting.make_evaluation_policy if evaluation else acting.make_policy)(network, config)
    return policy, params, network


def context(steps=0, count=COUNT, seed=1):
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(seed), i))(jnp.arange(count))
    return Context(keys, jnp.int32(steps), jnp.zeros(count), jnp.zeros(count))


def act(policy, params, context, observation=OBSERVATION):
    return policy.apply(params, context, observation, policy.init_state(len(observation)))


@pytest.mark.parametrize("distribution", ["none", "categorical", "quantile", "implicit"])
def test_environments_with_the_same_observation_act_by_noises_of_their_own(distribution):
    policy, params, _ = build(distribution=distribution, noisy_sigma=2.0)
    action, state, extras = act(policy, params, context())
    assert len(np.unique(action)) > 1
    assert state == ()
    np.testing.assert_array_equal(extras["priority"], np.full(COUNT, 3.5, np.float32))
    # Another step, another noise.
    assert (act(policy, params, context(seed=2))[0] != action).any()


def test_an_action_does_not_depend_on_who_else_is_in_the_batch():
    policy, params, _ = build(noisy_sigma=2.0)
    observation = np.random.default_rng(0).normal(size=OBSERVATION.shape).astype(np.float32)
    action, _, _ = act(policy, params, context(), observation)
    few, _, _ = act(policy, params, context(count=7), observation[:7])
    np.testing.assert_array_equal(few, action[:7])


def test_with_noise_there_is_no_epsilon():
    # A deviation of nothing: greedy, whatever epsilon is, at the run's beginning too.
    policy, params, network = build(epsilon_start=1.0, epsilon_end=1.0)
    params = params._replace(
        network={k: jax.tree.map(jnp.zeros_like, v) if "deviation" in k else v for k, v in params.network.items()}
    )
    best = jnp.argmax(network.apply(params.network, None, OBSERVATION[:1]).q)
    assert (act(policy, params, context())[0] == best).all()


def test_without_noise_exploration_is_dqns_epsilon():
    fields = {"noisy": False, "epsilon_start": 0.8, "epsilon_end": 0.2, "epsilon_decay_steps": 100}
    policy, params, network = build(**fields)
    best = int(jnp.argmax(network.apply(params.network, None, OBSERVATION[:1]).q))
    for steps, epsilon in ((0, 0.8), (100, 0.2)):
        share = np.mean(act(policy, params, context(steps))[0] == best)
        np.testing.assert_allclose(share, 1 - 0.75 * epsilon, atol=0.07)


@pytest.mark.parametrize("distribution", ["categorical", "implicit"])
def test_an_evaluation_has_no_noise_and_no_drawn_fractions(distribution):
    policy, params, network = build(evaluation=True, distribution=distribution, noisy_sigma=2.0)
    best = jnp.argmax(network.apply(params.network, None, OBSERVATION[:1]).q)
    for seed in (1, 2):
        action, _, extras = act(policy, params, context(seed=seed))
        assert (action == best).all()
        assert extras == ()


def test_an_evaluations_epsilon_is_its_own():
    policy, params, _ = build(evaluation=True, evaluation_epsilon=1.0)
    np.testing.assert_allclose(np.bincount(act(policy, params, context())[0]) / COUNT, 0.25, atol=0.08)


def test_uniform_replay_is_given_no_priorities():
    policy, params, _ = build(prioritized=False)
    assert act(policy, params, context())[2] == ()
