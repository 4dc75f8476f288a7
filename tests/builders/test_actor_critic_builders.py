"""D4PG, Ape-X DPG, MPO and DMPO, composed: what a config says is what the parts do."""

import dataclasses
import functools
from typing import Any

import acme.specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from acme_ext.acting.policy import Context
from acme_ext.agents.d4pg.config import SUITE as D4PG_SUITE
from acme_ext.agents.mpo.config import SUITE as DMPO_SUITE
from acme_ext.builders import D4PG, DMPO, MPO, Agent, ApexDPG
from acme_ext.replay.limits import RateLimit
from acme_ext.types import Sample, Transition

SPEC = acme.specs.EnvironmentSpec(
    observations={"height": specs.Array((), np.float32), "velocity": specs.Array((2,), np.float32)},
    actions=specs.BoundedArray((2,), np.float32, -1.0, 1.0),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0, 1),
)
SMALL = {"policy_sizes": (8,), "critic_sizes": (8, 6)}
every_agent = pytest.mark.parametrize("cls", [D4PG, ApexDPG, MPO, DMPO])


def small(cls: Any, replay: dict[str, Any] | None = None, **fields: Any) -> Any:
    config = cls().config
    settings = dataclasses.replace(config.replay, **replay or {})
    return cls(dataclasses.replace(config, replay=settings, **SMALL, **fields))


def observations(count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "height": rng.normal(size=count).astype(np.float32),
        "velocity": rng.normal(size=(count, 2)).astype(np.float32),
    }


def sample(count: int = 4) -> Sample:
    rng = np.random.default_rng(1)
    action = rng.uniform(-1, 1, (count, 2)).astype(np.float32)
    reward = rng.normal(size=count).astype(np.float32)
    data = Transition(observations(count), action, reward, np.full(count, 0.9, np.float32), observations(count))
    return Sample(data, np.ones(count, np.float32))


def context(count: int) -> Context:
    keys = jax.random.split(jax.random.key(1), count)
    return Context(keys, jnp.int32(0), jnp.zeros(count), jnp.zeros(count))


def act(agent: Agent, state: Any, count: int, *, evaluation: bool) -> tuple[np.ndarray, Any]:
    policy = agent.evaluation_policy if evaluation else agent.policy
    params = agent.core.variables(state)["policy"]
    action, _, extras = jax.jit(policy.apply)(params, context(count), observations(count), policy.init_state(count))
    return np.asarray(action), extras


@pytest.mark.parametrize("cls", [MPO, *(pytest.param(cls, marks=pytest.mark.release) for cls in (D4PG, ApexDPG, DMPO))])
def test_the_parts_fit_together(cls):
    agent = small(cls).make_agent(SPEC)
    core = agent.core
    state = core.init(jax.random.key(0))
    after, metrics, errors = jax.jit(core.step)(state, sample())
    assert int(after.steps) == 1
    assert errors.shape == (4,)
    assert {"loss", "gradient_norm"} <= metrics.keys()
    assert all(np.isfinite(value) and np.ndim(value) == 0 for value in metrics.values())
    assert jax.tree.structure(core.abstract_state()) == jax.tree.structure(after)
    action, _ = act(agent, after, 500, evaluation=False)
    assert action.shape == (500, 2)
    assert action.min() >= -1
    assert action.max() <= 1


@every_agent
def test_an_evaluation_is_deterministic_and_training_is_not(cls):
    agent = small(cls).make_agent(SPEC)
    core = agent.core
    state = core.init(jax.random.key(0))
    same = {name: np.repeat(value[:1], 50, axis=0) for name, value in observations(1).items()}
    params = core.variables(state)["policy"]
    action, _, extras = jax.jit(agent.evaluation_policy.apply)(params, context(50), same, ())
    # A row's rounding depends on its place in the batch; the noise below is 10,000 times as large.
    np.testing.assert_allclose(action, np.repeat(action[:1], 50, axis=0), rtol=1e-5, atol=1e-5)
    assert extras == ()
    action, _, _ = jax.jit(agent.policy.apply)(params, context(50), same, ())
    assert len(np.unique(action, axis=0)) == 50
    assert np.std(action, axis=0).min() > 0.04


@every_agent
def test_the_replay_is_the_configs(cls):
    settings = {"n_step": 2, "max_size": 30, "min_size": 20, "samples_per_insert": 3.0, "write_burst": 9}
    replay = small(cls, settings, batch_size=7, discount=0.5).make_agent(SPEC).replay
    assert replay.limit == RateLimit(3.0, 20)
    assert (replay.batch_size, replay.n_step, replay.discount, replay.max_size) == (7, 2, 0.5, 30)
    assert replay.burst == 9


@pytest.mark.slow
@pytest.mark.parametrize("cls", [pytest.param(D4PG, marks=pytest.mark.release), ApexDPG])
def test_prioritized_replay_is_a_choice_and_its_first_priorities_are_the_actors(cls):
    agent = small(cls, {"prioritized": True, "priority_exponent": 0.25}).make_agent(SPEC)
    assert (agent.replay.order, agent.replay.priority_exponent) == ("prioritized", 0.25)
    state = agent.core.init(jax.random.key(0))
    _, extras = act(agent, state, 3, evaluation=False)
    first = agent.replay.priority(np.ones(3), np.full(3, 0.9), extras, extras)
    np.testing.assert_allclose(first, np.abs(1 + 0.9 * extras.best - extras.taken), rtol=1e-5)
    # They are the very errors that the learner gives at first, when its target is the actors' network.
    given = sample(3)
    action, _ = act(agent, state, 3, evaluation=False)
    data = Transition(observations(3), action, np.ones(3), np.full(3, 0.9), observations(3))
    _, _, errors = agent.core.step(state, given._replace(data=data))
    if cls is ApexDPG:  # of D4PG's distributions, the ends are clipped
        np.testing.assert_allclose(errors, first, rtol=1e-4)

    plain = small(cls, {"prioritized": False}).make_agent(SPEC)
    assert plain.replay.order == "uniform"
    assert act(plain, plain.core.init(jax.random.key(0)), 3, evaluation=False)[1] == ()


@pytest.mark.release
@pytest.mark.parametrize("cls", [MPO, DMPO])
def test_prioritized_replay_begins_with_the_largest_error_where_actors_have_no_values(cls):
    agent = small(cls, {"prioritized": True}).make_agent(SPEC)
    state = agent.core.init(jax.random.key(0))
    state, _, errors = agent.core.step(state, sample())
    _, extras = act(agent, state, 3, evaluation=False)
    np.testing.assert_allclose(extras.largest_error, max(1.0, float(errors.max())))


def test_noise_and_its_absence():
    agent = small(D4PG, noise_stddev=0.0).make_agent(SPEC)
    state = agent.core.init(jax.random.key(0))
    quiet, evaluated = (act(agent, state, 20, evaluation=evaluation)[0] for evaluation in (False, True))
    np.testing.assert_allclose(quiet, evaluated, rtol=1e-5, atol=1e-5)  # two compilations
    noisy, _ = act(small(D4PG, noise_stddev=0.1).make_agent(SPEC), state, 20, evaluation=False)
    assert 0 < np.std(noisy - quiet) < 2 * 0.1


def test_the_control_suite_has_its_support():
    assert D4PG().for_environment("dmc:walker/walk").config == D4PG_SUITE
    assert DMPO().for_environment("dmc:walker/walk").config == DMPO_SUITE


@every_agent
def test_networks_of_ones_own_serve_acting_and_learning(cls):
    asked = []

    def recorded(make: Any, spec: Any, config: Any, torso: Any) -> Any:
        asked.append((spec, config, torso))
        return make(spec, config, torso)

    builder = small(cls)
    builder = dataclasses.replace(builder, network=functools.partial(recorded, builder.network))
    builder.make_agent(SPEC)
    assert asked == [(SPEC, builder.config, None)]


@every_agent
def test_layers_and_their_normalisation_are_the_configs(cls):
    def shapes(**fields: Any) -> list[tuple[int, ...]]:
        state = small(cls, **fields).make_agent(SPEC).core.abstract_state()
        return [leaf.shape for leaf in jax.tree.leaves((state.policy.params, state.critic.params))]

    plain, normalised = shapes(layer_norm=False), shapes(layer_norm=True)
    assert len(normalised) == len(plain) + 4  # a scale and an offset in each network
    assert (8, 6) in plain  # of the critic's layers
    assert (5, 8) in plain  # whose first takes three numbers of the observation and two of the action
    assert (6, 51 if cls in (D4PG, DMPO) else 1) in plain  # a logit for each atom
