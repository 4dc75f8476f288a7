import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spec_of import discrete

from acme_ext.acting.policy import Context
from acme_ext.agents.rainbow import acting, networks
from acme_ext.agents.rainbow.config import RainbowConfig

COUNT = 500
OBSERVATION = np.zeros((COUNT, 4), np.float32)


def build(evaluation=False, **fields):
    small = {"hidden_sizes": (16,), "num_atoms": 5, "num_quantiles": 4, "epsilon_start": 0.0, "epsilon_end": 0.0}
    config = RainbowConfig(**{**small, **fields})
    network = networks.make_network(discrete(4, (4,)), config)
    params = network.init(jax.random.key(0), OBSERVATION[:1])
    policy = acting.make_policy(network, config, evaluation=evaluation)
    return policy, params, network


def context(steps=0, count=COUNT, seed=1):
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(seed), i))(jnp.arange(count))
    return Context(keys, jnp.int32(steps), jnp.zeros(count), jnp.zeros(count))


def act(policy, params, context, observation=OBSERVATION, state=None):
    return policy.apply(params, context, observation, policy.init_state(len(observation)) if state is None else state)


@pytest.mark.parametrize(
    "distribution",
    ["categorical", *(pytest.param(name, marks=pytest.mark.release) for name in ("none", "quantile", "implicit"))],
)
def test_environments_with_the_same_observation_act_by_noises_of_their_own(distribution):
    policy, params, _ = build(distribution=distribution, noisy_sigma=2.0)
    action, _, extras = act(policy, params, context())
    assert len(np.unique(action)) > 1
    assert extras == ()


def test_an_environment_keeps_its_noise_for_a_period():
    policy, params, _ = build(noisy_sigma=2.0, noise_period=3)
    taken, state = [], policy.init_state(COUNT)
    for step in range(7):
        action, state, _ = act(policy, params, context(seed=step), state=state)
        taken.append(np.asarray(action))
    for a, b, same in [(0, 1, True), (1, 2, True), (2, 3, False), (3, 5, True), (5, 6, False)]:
        assert (taken[a] == taken[b]).all() == same
    # What an actor does where an episode began: only that environment's noise is new.
    state = jax.tree.map(lambda leaf, start: leaf.at[0].set(start[0]), state, policy.init_state(COUNT))
    _, after, _ = act(policy, params, context(seed=9), state=state)
    np.testing.assert_array_equal((after.key == state.key).all(-1), [False] + [True] * (COUNT - 1))
    np.testing.assert_array_equal(after.age, [1] + [8] * (COUNT - 1))
    # With a period of 1 each step has a noise of its own, which is that of the step's key.
    policy, params, _ = build(noisy_sigma=2.0, noise_period=1)
    _, state, _ = act(policy, params, context(seed=1))
    _, state, _ = act(policy, params, context(seed=2), state=state)
    np.testing.assert_array_equal(state.key, jax.random.key_data(context(seed=2).key))


def test_an_action_does_not_depend_on_who_else_is_in_the_batch():
    policy, params, _ = build(noisy_sigma=2.0)
    observation = np.random.default_rng(0).normal(size=OBSERVATION.shape).astype(np.float32)
    action, _, _ = act(policy, params, context(), observation)
    few, _, _ = act(policy, params, context(count=7), observation[:7])
    np.testing.assert_array_equal(few, action[:7])  # no two values are so near that rounding could swap them


@pytest.mark.parametrize("noisy", [True, False])
def test_some_actions_are_random_by_dqns_epsilon_beside_the_noise_too(noisy):
    fields = {"noisy": noisy, "epsilon_start": 0.8, "epsilon_end": 0.2, "epsilon_decay_steps": 100}
    policy, params, network = build(**fields)
    params = {k: jax.tree.map(jnp.zeros_like, v) if "deviation" in k else v for k, v in params.items()}
    best = int(jnp.argmax(network.apply(params, None, OBSERVATION[:1]).q))
    for steps, epsilon in ((0, 0.8), (1_000, 0.8), (1_100, 0.2)):  # learning starts at 1,000
        share = np.mean(act(policy, params, context(steps))[0] == best)
        np.testing.assert_allclose(share, 1 - 0.75 * epsilon, atol=0.07)


@pytest.mark.parametrize("distribution", ["categorical", "implicit"])
def test_an_evaluation_has_no_noise_and_no_drawn_fractions(distribution):
    policy, params, network = build(evaluation=True, distribution=distribution, noisy_sigma=2.0)
    best = jnp.argmax(network.apply(params, None, OBSERVATION[:1]).q)
    for seed in (1, 2):
        action, _, extras = act(policy, params, context(seed=seed))
        assert (action == best).all()
        assert extras == ()


def test_an_evaluations_epsilon_is_its_own():
    policy, params, _ = build(evaluation=True, evaluation_epsilon=1.0)
    np.testing.assert_allclose(np.bincount(act(policy, params, context())[0]) / COUNT, 0.25, atol=0.08)
