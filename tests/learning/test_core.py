import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from acme_ext.learning.core import LossOutput, TargetUpdate, TrainState, sgd_step, single_loss_core
from acme_ext.learning.prioritized import importance_weights, prioritized_core
from acme_ext.types import Sample

KEY = jax.random.key(0)


class Data(NamedTuple):
    x: np.ndarray


def sample(x, weight=None):
    x = np.asarray(x, np.float32)
    weight = np.ones(len(x)) if weight is None else np.asarray(weight)
    return Sample(Data(x), weight.astype(np.float32))


def falling(params, target_params, data, weight, key):
    """Its gradient is 1: by gradient descent of rate 0.1 the parameter falls by 0.1 a step."""
    metrics = {"target": target_params["w"], "weight": jnp.sum(weight), "draw": jax.random.uniform(key)}
    return params["w"] * jnp.mean(data.x), LossOutput(metrics, error=data.x)


def core_of(loss=falling, **options):
    return single_loss_core(loss, lambda key: {"w": jnp.zeros(())}, optax.sgd(0.1), **options)


def run(core, steps, x=(1.0, 1.0)):
    """Returns the states after each step, and the metrics of each."""
    state, states, metrics = core.init(KEY), [], []
    step = jax.jit(core.step)
    for _ in range(steps):
        state, one, _ = step(state, sample(x))
        states.append(state)
        metrics.append(one)
    return states, metrics


def test_the_target_begins_as_a_copy():
    core = single_loss_core(
        falling, lambda key: {"w": jax.random.normal(key)}, optax.adam(0.1), target_update=TargetUpdate(10)
    )
    state = core.init(KEY)
    assert state.params["w"] != 0
    assert state.target_params["w"] == state.params["w"]
    assert state.steps == 0
    other = core.init(jax.random.key(1))
    assert other.params["w"] != state.params["w"]
    assert (jax.random.key_data(other.key) != jax.random.key_data(state.key)).any()


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (TargetUpdate(), [-0.1, -0.2, -0.3, -0.4, -0.5, -0.6]),
        (TargetUpdate(period=3), [0, 0, -0.3, -0.3, -0.3, -0.6]),
        # Half of the way each: (0 - 0.1) / 2, (-0.05 - 0.2) / 2, (-0.125 - 0.3) / 2, ...
        (TargetUpdate(rate=0.5), [-0.05, -0.125, -0.2125, -0.30625, -0.403125, -0.5015625]),
        # The same every other step: (0 - 0.2) / 2, (-0.1 - 0.4) / 2, (-0.25 - 0.6) / 2.
        (TargetUpdate(period=2, rate=0.5), [0, -0.1, -0.1, -0.25, -0.25, -0.425]),
    ],
)
def test_the_target_follows(update, expected):
    states, metrics = run(core_of(target_update=update), 6)
    np.testing.assert_allclose([s.params["w"] for s in states], -0.1 * np.arange(1, 7), rtol=1e-5)
    np.testing.assert_allclose([s.target_params["w"] for s in states], expected, rtol=1e-5, atol=1e-7)
    # A step's loss is given the target that the steps before have left.
    np.testing.assert_allclose([m["target"] for m in metrics], [0, *expected[:-1]], rtol=1e-5, atol=1e-7)


def test_without_a_target_the_loss_is_given_the_online_parameters():
    states, metrics = run(core_of(), 4)
    assert all(s.target_params == () for s in states)
    np.testing.assert_allclose([m["target"] for m in metrics], -0.1 * np.arange(4), rtol=1e-5, atol=1e-7)


def test_importance_weights_by_hand():
    # 1/P is 2, 4, 8; to the power of 1/2 it is sqrt 2, 2, 2 sqrt 2; over the largest: 1/2, 1/sqrt 2, 1.
    weights = importance_weights(jnp.array([0.5, 0.25, 0.125]), 0.5)
    np.testing.assert_allclose(weights, [0.5, 1 / math.sqrt(2), 1.0], rtol=1e-6)
    np.testing.assert_allclose(importance_weights(jnp.array([0.5, 0.25, 0.125]), 1.0), [0.25, 0.5, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(importance_weights(jnp.array([0.5, 0.25, 0.125]), 0.0), 1.0)


def test_importance_weights_of_the_rarest_items():
    # With a million items, and with a priority of nearly nothing, they don't overflow.
    weights = importance_weights(jnp.array([1e-6, 1e-30, 0.0, 1.0]), 1.0)
    assert np.isfinite(weights).all()
    assert weights.max() == 1
    np.testing.assert_allclose(weights[0], 1e-20 / 1e-6, rtol=1e-4)


def test_the_loss_is_given_the_samples_weights():
    _, metrics, _ = core_of().step(core_of().init(KEY), sample([1, 1, 1], [0.25, 0.5, 1.0]))
    assert metrics["weight"] == 1.75


def test_the_largest_error_is_kept_and_goes_to_the_actors():
    core = prioritized_core(core_of())
    state, kept = core.init(KEY), []
    for x in ([0.2, 0.5], [3.0, 0.1], [2.0, 2.5], [4.0, 0.0]):
        state, _, errors = core.step(state, sample(x))
        np.testing.assert_array_equal(errors, np.float32(x))
        published = core.variables(state)["policy"]
        assert published.policy is state.core.params
        kept.append(float(published.largest_error))
    assert kept == [1, 3, 3, 4]


def test_a_metric_does_not_replace_the_loss():
    core = core_of(lambda params, target, data, weight, key: (params["w"], LossOutput({"loss": 100 + params["w"]})))
    state = core.init(KEY)
    assert float(core.step(state, sample([1]))[1]["loss"]) == float(state.params["w"])


def test_every_step_has_a_key_of_its_own():
    _, metrics = run(core_of(), 20)
    draws = [float(m["draw"]) for m in metrics]
    assert len(set(draws)) == 20
    # The state holds the keys to come: from a state in between the rest is the same.
    core = core_of()
    states, _ = run(core, 10)
    _, again, _ = core.step(states[-1], sample([1.0, 1.0]))
    assert again["draw"] == draws[10]


def test_metrics():
    def loss(params, target_params, data, weight, key):
        return 3 * params["a"] + 4 * params["b"], LossOutput({"mine": jnp.float32(7)})

    core = single_loss_core(loss, lambda key: {"a": jnp.ones(()), "b": jnp.ones(())}, optax.sgd(0.1))
    _, metrics, _ = core.step(core.init(KEY), sample([0.0]))
    assert metrics == {"loss": 7, "gradient_norm": 5, "mine": 7}


def test_the_optimizer_sees_the_parameters():
    # Decay of 1/2 alone: 8 becomes 8 - 0.1 * (1 + 0.5 * 8).
    optimizer = optax.chain(optax.add_decayed_weights(0.5), optax.sgd(0.1))
    core = single_loss_core(falling, lambda key: {"w": jnp.full((), 8.0)}, optimizer)
    state, _, _ = core.step(core.init(KEY), sample([1.0]))
    np.testing.assert_allclose(state.params["w"], 7.5, rtol=1e-6)


def test_a_quadratic_converges():
    def loss(params, target_params, data, weight, key):
        error = jnp.sum((data.x - params["w"]) ** 2, axis=-1)
        return jnp.mean(weight * error), LossOutput({})

    core = single_loss_core(loss, lambda key: {"w": jnp.zeros(2)}, optax.adam(0.05), target_update=TargetUpdate(7))
    state, step, rng = core.init(KEY), jax.jit(core.step), np.random.default_rng(0)
    for _ in range(400):
        state, metrics, _ = step(state, sample(rng.normal([2.0, -1.0], 0.01, (16, 2))))
    np.testing.assert_allclose(state.params["w"], [2, -1], atol=0.02)
    assert metrics["loss"] < 1e-3
    assert state.steps == 400


def test_the_abstract_state_is_the_states():
    core = core_of(target_update=TargetUpdate(3))
    state = core.init(KEY)
    shape = jax.tree.map(lambda x: (x.shape, x.dtype), core.abstract_state())
    assert shape == jax.tree.map(lambda x: (x.shape, x.dtype), state)


def test_variables_are_the_parameters():
    state = core_of().init(KEY)
    assert core_of().variables(state) == {"policy": state.params}


def test_a_step_down_a_gradient():
    def loss(params, x):
        return jnp.sum(params["w"] * x), {"sum": jnp.sum(x)}

    optimizer = optax.sgd(0.1, momentum=0.5)
    params = {"w": jnp.array([1.0, 2.0])}
    trained = TrainState(params, optimizer.init(params))
    x = jnp.array([3.0, 4.0])
    trained, descent = sgd_step(loss, optimizer, trained, x)
    np.testing.assert_allclose(trained.params["w"], [0.7, 1.6], rtol=1e-6)
    assert (descent.loss, descent.aux["sum"], descent.gradient_norm) == (11.0, 7.0, 5.0)
    trained, _ = sgd_step(loss, optimizer, trained, x)
    np.testing.assert_allclose(trained.params["w"], [0.7 - 0.45, 1.6 - 0.6], rtol=1e-5)  # with half of the step before
