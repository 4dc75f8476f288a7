"""Environments in JAX: their rules beside the originals', the rules of a batch, and what is refused."""

import dataclasses
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bsuite.environments.catch import Catch
from bsuite.environments.memory_chain import MemoryChain
from dm_env import specs

from acme_ext import envs
from acme_ext.envs.functional import FunctionalEnvironment, Moved, canonical_functional, row_keys
from acme_ext.envs.jax_games import functional
from acme_ext.errors import RunError, UsageError

FIRST, LAST = 0, 2


@pytest.mark.parametrize("name", ["CartPole-v1", "catch", "MountainCarContinuous-v0", "minatar-breakout"])
def test_a_batch_keeps_the_contract(name, rollout):
    with envs.make(f"jax:{name}", num_envs=3, seed=2) as environment:
        rollout(environment, 30)


def to_gymnasium(name, inner):
    """The state of Gymnax's environment as Gymnasium's has it."""
    names = {
        "CartPole-v1": ("x", "x_dot", "theta", "theta_dot"),
        "Acrobot-v1": ("joint_angle1", "joint_angle2", "velocity_1", "velocity_2"),
        "MountainCar-v0": ("position", "velocity"),
        "MountainCarContinuous-v0": ("position", "velocity"),
        "Pendulum-v1": ("theta", "theta_dot"),
    }
    return np.array([float(getattr(inner, field)) for field in names[name]])


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"]
)
def test_every_step_is_gymnasiums(name):
    environment, original = functional(name), gymnasium.make(name).unwrapped
    limit = gymnasium.spec(name).max_episode_steps
    step, spec = jax.jit(environment.step), environment.action_spec()
    state, timestep = jax.jit(environment.reset)(jax.random.key(1))
    rng, time, ends = np.random.default_rng(0), 0, []
    original.reset()
    for _ in range(250):
        discrete = hasattr(spec, "num_values")
        action = rng.integers(spec.num_values) if discrete else rng.uniform(spec.minimum, spec.maximum, spec.shape)
        if not discrete:
            action = action.astype(np.float32)
        original.state, before = to_gymnasium(name, state.inner.inner), state.last
        state, timestep = step(state, action)
        if before:
            assert (int(timestep.step_type), float(timestep.reward), float(timestep.discount)) == (FIRST, 0.0, 1.0)
            original.reset()
            time = 0
            continue
        observation, reward, terminated, _, _ = original.step(action)
        time += 1
        np.testing.assert_allclose(timestep.observation, observation, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(timestep.reward, reward, rtol=1e-4, atol=1e-5)
        assert float(timestep.discount) == float(not terminated)
        assert (int(timestep.step_type) == LAST) == (terminated or time == limit)
        ends += [time] * int(state.last)
    assert name in ("Acrobot-v1", "MountainCarContinuous-v0") or ends, "an episode's end was never compared"


def test_a_time_limit_is_a_truncation():
    environment = functional("Pendulum-v1")
    state, _ = environment.reset(jax.random.key(0))

    def step(state, _):
        state, timestep = environment.step(state, jnp.zeros(1))
        return state, (timestep.step_type, timestep.discount)

    _, (kinds, discounts) = jax.jit(lambda state: jax.lax.scan(step, state, length=402))(state)
    assert np.flatnonzero(np.asarray(kinds) == LAST).tolist() == [199, 400]
    assert (np.asarray(discounts) == 1).all()


def test_every_step_of_catch_is_bsuites():
    original = Catch()
    with envs.make("jax:catch", num_envs=1, seed=3) as environment:
        timestep, rng, ends = environment.reset(), np.random.default_rng(0), 0
        for _ in range(60):
            if timestep.step_type[0] == FIRST:
                original.reset()
                original._ball_x = int(timestep.observation[0, 0].argmax())
            action, was_last = int(rng.integers(3)), timestep.step_type[0] == LAST
            timestep = environment.step(np.array([action]))
            if was_last:
                continue
            expected = original.step(action)
            np.testing.assert_array_equal(timestep.observation[0], expected.observation)
            got = (timestep.step_type[0], timestep.reward[0], timestep.discount[0])
            assert got == (expected.step_type, expected.reward, expected.discount)
            ends += expected.last()
    assert ends > 4


def test_every_step_of_memory_is_bsuites():
    original = MemoryChain(5)
    with envs.make("jax:memory", num_envs=1, seed=3) as environment:
        timestep, rng, ends = environment.reset(), np.random.default_rng(0), 0
        for _ in range(60):
            if timestep.step_type[0] == FIRST:
                original.reset()
                original._context = np.array([timestep.observation[0, 2] > 0], int)
            action, was_last = int(rng.integers(2)), timestep.step_type[0] == LAST
            timestep = environment.step(np.array([action]))
            if was_last:
                continue
            expected = original.step(action)
            np.testing.assert_allclose(timestep.observation[0], expected.observation[0], atol=1e-6)
            got = (timestep.step_type[0], timestep.reward[0], timestep.discount[0])
            assert got == (expected.step_type, expected.reward, expected.discount)
            ends += expected.last()
    assert ends > 4


def test_actions_in_one_unit_are_those_of_the_batched_interface():
    environment = canonical_functional(functional("Pendulum-v1"))
    state, _ = jax.vmap(environment.reset)(row_keys(11, 2))
    with envs.canonical_actions(envs.make("jax:Pendulum-v1", num_envs=2)) as batch:
        batch.environment._seed = 11
        batch.reset()
        for action in np.float32([[[0.3], [-2.0]], [[1.0], [0.1]]]):
            expected = batch.step(action)
            state, timestep = jax.vmap(environment.step)(state, action)
            np.testing.assert_allclose(timestep.observation, expected.observation, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(timestep.reward, expected.reward, rtol=1e-5, atol=1e-6)


def test_rows_are_the_same_whoever_shares_the_batch():
    rows = [roll(num_envs)[:, 1] for num_envs in (2, 5)]
    np.testing.assert_array_equal(rows[0], rows[1])


def roll(num_envs):
    with envs.make("jax:catch", num_envs=num_envs, seed=7) as environment:
        seen = [environment.reset().observation.copy()]
        return np.stack([*seen, *(environment.step(np.ones(num_envs, int)).observation.copy() for _ in range(12))])


def test_what_is_no_environment_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'jax:CartPole-v1'"):
        envs.check_environment("jax:CartPole")
    with pytest.raises(UsageError, match="has no option 'fast'"):
        envs.check_environment("jax:catch", fast=True)


@dataclasses.dataclass  # with __eq__ and without frozen it has no hash
class Line(FunctionalEnvironment):
    """Delivers what it is told to."""

    shape: tuple[int, ...] = (3,)
    named: bool = False
    reward: tuple[int, ...] = ()
    terminated: tuple[int, ...] = ()
    dtype: Any = np.float32

    def begin(self, key):
        seen = jnp.zeros(self.shape, bool)
        return jnp.int32(0), {"seen": seen} if self.named else seen

    def move(self, key, state, action):
        end = jnp.full(self.terminated, state >= 2)
        return Moved(state + 1, self.begin(key)[1], jnp.ones(self.reward), end, jnp.bool_(False))

    def observation_spec(self):
        return specs.Array((3,), self.dtype)

    def action_spec(self):
        return specs.BoundedArray((1,), np.float32, -2.0, 2.0)


class Drifting(Line):
    """Begins with whole numbers and goes on with fractions."""

    def move(self, key, state, action):
        return super().move(key, state, action)._replace(state=state + 0.5)


class Growing(Line):
    """Begins with one number and goes on with two."""

    def move(self, key, state, action):
        return super().move(key, state, action)._replace(state=(state, state))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Drifting, r"Drifting\.begin returns a state with int32\[\], and Drifting\.move returns one with float32\[\]"),
        (Growing, r"Growing\.move returns a state of another structure than Growing\.begin"),
    ],
)
def test_a_state_that_changes_its_type_is_told(kind, told):
    with envs.make(lambda seed, evaluation: kind(), num_envs=2) as environment:
        environment.reset()
        with pytest.raises(RunError, match=told):
            environment.step(np.zeros((2, 1)))


def test_an_environment_without_a_hash_is_made(rollout):
    with envs.make(lambda seed, evaluation: Line(), num_envs=2) as environment:
        rollout(environment, 8)


@pytest.mark.parametrize(("dtype", "single"), [(np.float64, np.float32), (np.int64, np.int32)])
def test_specs_are_in_single_precision(dtype, single, rollout):
    with envs.make(lambda seed, evaluation: Line(dtype=dtype), num_envs=2) as environment:
        assert environment.observation_spec().dtype == single
        rollout(environment, 8)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"shape": (4,)},
            r"^Line delivered an observation of shape \(4,\) and type bool; its spec says float32 of shape",
        ),
        (
            {"named": True},
            "^Line delivered an observation of another structure .* a mapping with 'seen', and not a single",
        ),
        ({"reward": (1,)}, r"^Line delivered 'reward' of shape \(1,\); it must be one number"),
        ({"terminated": (1,)}, r"^Line delivered 'terminated' of shape \(1,\)"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda environment: environment, canonical_functional])
def test_what_is_not_as_the_specs_say_is_told_by_environment_and_field(wrap, fields, told):
    environment = wrap(Line(**fields))

    def begin_and_step():
        state, _ = environment.reset(jax.random.key(0))
        return environment.step(state, jnp.zeros(1))

    with pytest.raises(RunError, match=told):
        jax.eval_shape(begin_and_step)
