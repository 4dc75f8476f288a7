import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.policy import Context, Policy
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.normalized import normalized_core, normalized_policy
from acme_ext.types import OneStep, Sample, Sequence, Transition

KEY = jax.random.key(0)
PIXELS = np.full((2, 1), 7, np.uint8)


def core_that_shows() -> LearnerCore:
    """A core whose metrics are the batch's observations."""
    return LearnerCore(
        init=lambda key: jnp.zeros(()),
        step=lambda state, sample: (state + 1, {"loss": state, "data": sample.data}, None),  # type: ignore[dict-item]
        variables=lambda state: {"policy": state, "other": state},
    )


def observations(*values):
    return {"a": np.array(values, np.float32)[:, None], "pixels": np.full((len(values), 1), 7, np.uint8)}


def test_transitions_are_normalised_by_what_came_before_them():
    core = normalized_core(core_that_shows(), observations(0.0), 1.5)
    one_step = OneStep(np.zeros(2), np.zeros(2), observations(1.0, -5.0))
    batch = Transition(observations(1.0, 2.0), None, np.zeros(2), np.zeros(2), observations(3.0, -4.0), (), one_step)
    sample = Sample(batch, np.ones(2, np.float32))
    state, metrics, _ = core.step(core.init(KEY), sample)
    # Nothing was seen yet: as they are, but clipped. Integers are left alone.
    np.testing.assert_allclose(metrics["data"].observation["a"], [[1.0], [1.5]])
    np.testing.assert_allclose(metrics["data"].next_observation["a"], [[1.5], [-1.5]])
    np.testing.assert_allclose(metrics["data"].one_step.next_observation["a"], [[1.0], [-1.5]])
    np.testing.assert_array_equal(metrics["data"].observation["pixels"], PIXELS)
    assert state.observations.count == 2
    np.testing.assert_allclose(state.observations.mean, [[1.5]])
    np.testing.assert_allclose(state.observations.variance, [[0.25]])
    _, metrics, _ = core.step(state, sample)
    np.testing.assert_allclose(metrics["data"].observation["a"], [[-1.0], [1.0]], rtol=1e-5)


def test_what_is_no_step_has_no_part_in_the_moments():
    unrolls = Sequence(
        observation=np.array([1.0, 2.0, 9.0, 5.0], np.float32)[:, None, None],
        reward=np.zeros((4, 1), np.float32),
        first=np.zeros((4, 1), np.bool_),
        action=np.zeros((3, 1), np.int32),
        discount=np.ones((3, 1), np.float32),
        mask=np.array([[1.0], [1.0], [0.0]], np.float32),
        extras=(),
        state=(),
    )
    core = normalized_core(core_that_shows(), np.zeros((1, 1), np.float32), 10.0)
    state, _, _ = core.step(core.init(KEY), Sample(unrolls, np.ones(1, np.float32)))
    # The third step is none, and the last observation begins no step of this unroll.
    np.testing.assert_allclose(state.observations.mean, [[1.5]])


def test_actors_are_given_the_learners_moments():
    core = normalized_core(core_that_shows(), observations(0.0), 1.5)
    batch = Transition(observations(1.0, 2.0), None, np.zeros(2), np.zeros(2), observations(3.0, -4.0))
    state, _, _ = core.step(core.init(KEY), Sample(batch, np.ones(2, np.float32)))
    variables = core.variables(state)
    assert variables["policy"].policy == variables["other"] == 1
    policy = normalized_policy(Policy(lambda params, context, seen, state: (params, seen, ())), observations(0.0), 1.5)
    context = Context(jax.random.split(KEY, 2), jnp.int32(0), jnp.zeros(2), jnp.zeros(2))
    params, seen, _ = policy.apply(variables["policy"], context, observations(2.0, 9.0), ())
    assert params == 1
    np.testing.assert_allclose(seen["a"], [[1.0], [1.5]], rtol=1e-5)
    np.testing.assert_array_equal(seen["pixels"], PIXELS)
