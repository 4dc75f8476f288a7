import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting import stochastic
from acme_ext.acting.policy import Context
from acme_ext.acting.stochastic import VersionedParams
from acme_ext.ops.gaussian import Gaussian
from acme_ext.ops.policy import Categorical

N = 5_000
LOGITS = jnp.log(jnp.array([0.1, 0.6, 0.3]))


def context(count=N, seed=0):
    keys = jax.random.split(jax.random.key(seed), count)
    return Context(keys, jnp.int32(0), jnp.zeros(count), jnp.zeros(count))


def choose(params, context, observation, state):
    return Categorical(jnp.broadcast_to(params, (observation.shape[0], 3))), state


def move(params, context, observation, state):
    mean = jnp.broadcast_to(params, (observation.shape[0], 2))
    return Gaussian(mean, jnp.full_like(mean, 0.5)), state


PUBLISHED = VersionedParams(LOGITS, jnp.int32(12))


def test_samples_with_their_log_probability_and_the_policys_version():
    policy = stochastic.make_policy(choose, evaluation=False)
    action, state, extras = jax.jit(policy.apply)(PUBLISHED, context(), jnp.zeros((N, 1)), ())
    np.testing.assert_allclose(np.bincount(action) / N, [0.1, 0.6, 0.3], atol=0.03)
    np.testing.assert_allclose(extras.log_prob, LOGITS[action], rtol=1e-5)
    np.testing.assert_array_equal(extras.learner_steps, np.full(N, 12))
    assert (state, policy.init_state(3)) == ((), ())


def test_greedy_is_the_mode_and_stores_nothing():
    for decide, params, expected in (
        (choose, LOGITS, np.full(4, 1)),
        (move, jnp.array([0.5, 7.0]), np.tile([0.5, 7.0], (4, 1))),
    ):
        policy = stochastic.make_policy(decide, evaluation=True)
        action, _, extras = policy.apply(VersionedParams(params, jnp.int32(0)), context(4), jnp.zeros((4, 1)), ())
        np.testing.assert_allclose(action, expected)
        assert extras == ()


def test_continuous_samples_are_not_clipped():
    policy = stochastic.make_policy(move, evaluation=False)
    action, _, extras = policy.apply(
        VersionedParams(jnp.array([0.8, 0.0]), jnp.int32(0)), context(), jnp.zeros((N, 1)), ()
    )
    sampled = np.asarray(action)
    np.testing.assert_allclose([sampled.mean(0), sampled.std(0)], [[0.8, 0.0], [0.5, 0.5]], atol=0.03)
    assert np.mean(sampled > 1) > 0.1
    expected = Gaussian(jnp.array([0.8, 0.0]), jnp.full(2, 0.5)).log_prob(sampled)
    np.testing.assert_allclose(extras.log_prob, expected, rtol=1e-4)


def test_an_environments_action_does_not_depend_on_the_others():
    for decide, params in ((choose, LOGITS), (move, jnp.zeros(2))):
        policy = stochastic.make_policy(decide, evaluation=False)
        published, everyone = VersionedParams(params, jnp.int32(0)), context(6)
        together, _, _ = policy.apply(published, everyone, jnp.zeros((6, 1)), ())
        some = Context(everyone.key[2:4], everyone.steps, everyone.rank[2:4], everyone.reward[2:4])
        apart, _, _ = policy.apply(published, some, jnp.zeros((2, 1)), ())
        np.testing.assert_allclose(together[2:4], apart, rtol=1e-5)


def test_a_state_may_hold_the_action():
    policy = stochastic.make_policy(
        choose,
        init_state=lambda batch: jnp.full(batch, -1),
        remember=lambda state, action: action,
        evaluation=False,
    )
    state = policy.init_state(4)
    np.testing.assert_array_equal(state, [-1] * 4)
    action, state, _ = policy.apply(PUBLISHED, context(4), jnp.zeros((4, 1)), state)
    np.testing.assert_array_equal(state, action)


def test_the_extras_are_of_their_spec():
    for decide, params in ((choose, LOGITS), (move, jnp.zeros(2))):
        policy = stochastic.make_policy(decide, evaluation=False)
        _, _, extras = policy.apply(VersionedParams(params, jnp.int32(0)), context(4), jnp.zeros((4, 1)), ())
        for given, stands_for_it in zip(extras, stochastic.EXAMPLE_EXTRAS, strict=True):
            assert (given.shape[1:], given.dtype) == (stands_for_it.shape, stands_for_it.dtype)
