import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.continuous import make_policy
from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Context

N = 4_000


def context(steps=0, count=N):
    keys = jax.random.split(jax.random.key(0), count)
    return Context(keys, jnp.int32(steps), jnp.zeros(count), jnp.zeros(count))


def act(policy, steps, count=N, params=None):
    action, state, extras = policy.apply(params, context(steps, count), jnp.zeros((count, 3)), ())
    assert (state, extras) == ((), ())
    return np.asarray(action)


def test_actions_are_clipped():
    policy = make_policy(lambda params, keys, o: jnp.broadcast_to(params, (len(o), 2)))
    np.testing.assert_allclose(act(policy, 0, 3, jnp.array([0.2, 5.0])), [[0.2, 1.0]] * 3, rtol=1e-6)


def test_at_first_they_are_uniform_over_the_bounds():
    policy = make_policy(lambda params, keys, o: jnp.zeros((len(o), 2)), random_steps=10)
    random = act(policy, 9)
    assert (random >= -1).all()
    assert (random <= 1).all()
    np.testing.assert_allclose(random.mean(0), [0, 0], atol=0.04)
    np.testing.assert_allclose(random.std(0), 2 / 12**0.5, rtol=0.05)
    np.testing.assert_allclose(np.corrcoef(random.T)[0, 1], 0, atol=0.08)
    np.testing.assert_allclose(act(policy, 10), np.zeros((N, 2)))


def test_an_environment_does_not_depend_on_its_neighbours():
    policy = make_policy(lambda params, keys, o: 0.1 * normal_noise(keys, 2), random_steps=10)
    for steps in (0, 10):
        whole = policy.apply(None, context(steps, 8), jnp.zeros((8, 3)), ())[0]
        alone = Context(context(steps, 8).key[5:6], jnp.int32(steps), jnp.zeros(1), jnp.zeros(1))
        np.testing.assert_allclose(policy.apply(None, alone, jnp.zeros((1, 3)), ())[0], whole[5:6], rtol=1e-6)
