import dataclasses
from typing import Any

import acme.specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from acme_ext import launch
from acme_ext.acting.policy import Context
from acme_ext.agents.rainbow.config import ATARI, MINATAR, RainbowConfig
from acme_ext.builders import DQN, Rainbow
from acme_ext.errors import UsageError
from acme_ext.launch import local
from acme_ext.types import Sample, Transition

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
    discount, probability = np.full(size, 0.9, np.float32), np.full(size, 0.1, np.float32)
    return Sample(Transition(observation, action, reward, discount, following), probability)


def context(batch: int) -> Context:
    return Context(jax.random.split(jax.random.key(1), batch), jnp.int32(0), jnp.zeros(batch), jnp.zeros(batch))


OFF = [
    {},
    {"double": False},
    {"dueling": False},
    {"prioritized": False},
    {"n_step": 1},
    {"distribution": "none"},
    {"distribution": "quantile"},
    {"distribution": "implicit"},
    {"noisy": False},
]


@pytest.mark.parametrize("off", [OFF[0], *(pytest.param(off, marks=pytest.mark.slow) for off in OFF[1:])], ids=str)
def test_the_parts_fit_together_whichever_is_off(off):
    config = RainbowConfig(**{**_SMALL, **off})
    builder, spec = Rainbow(config), spec_of(_GRID)
    replay = builder.make_replay(spec)
    assert (replay.n_step, replay.prioritized) == (config.n_step, config.prioritized)
    core = builder.make_core(spec)
    state, metrics, priority = jax.jit(core.step)(core.init(jax.random.key(0)), sample_of(spec, 6))
    assert np.isfinite(metrics["loss"])
    if config.prioritized:
        assert priority.shape == (6,)
        assert np.all(priority >= config.priority_offset)
    else:
        assert priority is None
    for evaluation in (False, True):
        policy = builder.make_policy(spec, evaluation=evaluation)
        observation = jnp.zeros((3, *_GRID.shape))
        action, _, extras = policy.apply(core.variables(state)["policy"], context(3), observation, policy.init_state(3))
        assert action.shape == (3,)
        assert list(extras) == (["priority"] if config.prioritized and not evaluation else [])


def test_its_replay_is_dqns_of_the_same_numbers():
    for config in (ATARI, MINATAR, RainbowConfig()):
        ours, theirs = Rainbow(config).make_replay(spec_of()), DQN(config).make_replay(spec_of())
        assert ours == theirs


@pytest.mark.parametrize("part", ["make_policy", "make_core"])
@pytest.mark.parametrize(
    "actions", [specs.BoundedArray((2,), np.float32, -1, 1), specs.BoundedArray((), np.float32, 0, 1)]
)
def test_continuous_actions_are_refused_by_name(part, actions):
    with pytest.raises(UsageError, match=r"Rainbow needs an environment with one discrete action; .* BoundedArray"):
        getattr(Rainbow(), part)(spec_of(actions=actions))


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
        assert builder.sgd_steps_per_call > 0
        builder.make_replay(spec)
        core = builder.make_core(spec)
        state = jax.eval_shape(core.init, jax.random.key(0))
        jax.eval_shape(core.step, state, sample_of(spec, 2))
        for evaluation in (False, True):
            policy = builder.make_policy(spec, evaluation=evaluation)
            variables = jax.eval_shape(core.variables, state)["policy"]
            o = jnp.zeros((1, *observation.shape), observation.dtype)
            jax.eval_shape(policy.apply, variables, context(1), o, policy.init_state(1))
    assert read == names


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_it_learns_catch(tmp_path):
    config = RainbowConfig(num_atoms=21, v_min=-2.0, v_max=2.0, batch_size=32, samples_per_insert=8.0)
    experiment = launch.Experiment(
        Rainbow(config),
        "bsuite:catch/0",
        steps=6_000,
        num_envs=8,
        evaluation=launch.Evaluation(every=0, final_episodes=50),
        run_dir=str(tmp_path / "run"),
    )
    assert np.mean(local.run(experiment, quiet=True).score.returns) >= 0.8
