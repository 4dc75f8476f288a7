import dataclasses
from typing import Any

import acme.specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs
from spec_of import policy_of

from acme_ext import launch
from acme_ext.acting.policy import Context
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.agents.rainbow.config import ATARI, MINATAR, RainbowConfig
from acme_ext.builders import DQN, Rainbow
from acme_ext.replay.config import TransitionConfig
from acme_ext.types import PrioritizedExtras, Sample, Transition

_VECTOR = specs.Array((3,), np.float32)
_GRID = specs.BoundedArray((10, 10, 4), np.float32, 0, 1)
_SMALL = {"hidden_sizes": (8,), "image_features": 8, "num_atoms": 5, "num_quantiles": 4}


def spec_of(observation: specs.Array = _VECTOR, actions: Any = None) -> acme.specs.EnvironmentSpec:
    return acme.specs.EnvironmentSpec(
        observations=observation,
        actions=actions or specs.DiscreteArray(4),
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0, 1),
    )


def sample_of(spec: acme.specs.EnvironmentSpec, size: int) -> Sample:
    rng = np.random.default_rng(0)
    observation, following = rng.integers(0, 2, (2, size, *spec.observations.shape)).astype(spec.observations.dtype)
    action, reward = rng.integers(0, 4, size).astype(np.int32), rng.normal(size=size).astype(np.float32)
    discount, weight = np.full(size, 0.9, np.float32), np.ones(size, np.float32)
    return Sample(Transition(observation, action, reward, discount, following), weight)


def context(batch: int) -> Context:
    return Context(jax.random.split(jax.random.key(1), batch), jnp.int32(0), jnp.zeros(batch), jnp.zeros(batch))


OFF = [
    {},
    {"double": False},
    {"dueling": False},
    {"replay": TransitionConfig(n_step=3)},
    {"replay": TransitionConfig(prioritized=True)},
    {"distribution": "none"},
    {"distribution": "quantile"},
    {"distribution": "implicit"},
    {"noisy": False},
]


@pytest.mark.release
@pytest.mark.parametrize("off", OFF, ids=str)
def test_the_parts_fit_together_whichever_is_off(off):
    config = RainbowConfig(**{**_SMALL, **off})
    builder, spec = Rainbow(config), spec_of(_GRID)
    replay = builder.make_agent(spec).replay
    assert (replay.n_step, replay.prioritized) == (config.replay.n_step, config.replay.prioritized)
    core = builder.make_agent(spec).core
    state, metrics, errors = jax.jit(core.step)(core.init(jax.random.key(0)), sample_of(spec, 6))
    assert np.isfinite(metrics["loss"])
    assert errors.shape == (6,)
    assert np.all(errors >= 0)
    for evaluation in (False, True):
        policy = policy_of(builder, spec, evaluation=evaluation)
        observation = jnp.zeros((3, *_GRID.shape))
        action, _, extras = policy.apply(core.variables(state)["policy"], context(3), observation, policy.init_state(3))
        assert action.shape == (3,)
        assert isinstance(extras, PrioritizedExtras) == config.replay.prioritized


def test_its_replay_is_dqns_of_the_same_numbers():
    for config in (ATARI, MINATAR, RainbowConfig()):
        theirs = DQN(
            DQNConfig(batch_size=config.batch_size, max_abs_reward=config.max_abs_reward, replay=config.replay)
        )
        assert Rainbow(config).make_agent(spec_of()).replay == theirs.make_agent(spec_of()).replay


@pytest.mark.release
def test_every_field_of_the_config_is_read(monkeypatch):
    names = {field.name for field in dataclasses.fields(RainbowConfig)}
    configs = [RainbowConfig(**_SMALL, **off) for off in OFF]
    configs.append(RainbowConfig(**_SMALL, optimizer="rmsprop"))
    read: set[str] = set()

    def record(self: Any, name: str) -> Any:
        if name in names:
            read.add(name)
        return object.__getattribute__(self, name)

    monkeypatch.setattr(RainbowConfig, "__getattribute__", record)
    for config, observation in [(configs[0], _GRID), *((config, _VECTOR) for config in configs)]:
        builder, spec = Rainbow(config), spec_of(observation)
        core = builder.make_agent(spec).core
        state = jax.eval_shape(core.init, jax.random.key(0))
        jax.eval_shape(core.step, state, sample_of(spec, 2))
        for evaluation in (False, True):
            policy = policy_of(builder, spec, evaluation=evaluation)
            variables = jax.eval_shape(core.variables, state)["policy"]
            o = jnp.zeros((1, *observation.shape), observation.dtype)
            jax.eval_shape(policy.apply, variables, context(1), o, policy.init_state(1))
    assert read == names


REPLAY = TransitionConfig(n_step=3, prioritized=True, priority_exponent=0.5, samples_per_insert=8.0)


@pytest.mark.release
@pytest.mark.usefixtures("no_figures")
def test_it_learns_catch(tmp_path):
    config = RainbowConfig(num_atoms=21, v_min=-2.0, v_max=2.0, batch_size=32, replay=REPLAY)
    experiment = launch.Experiment(
        Rainbow(config),
        "bsuite:catch/0",
        steps=6_000,
        num_envs=8,
        evaluation=launch.Evaluation(every=0, final_episodes=50),
        run_dir=str(tmp_path / "run"),
    )
    assert np.mean(launch.run(experiment, quiet=True).score.returns) >= 0.8
