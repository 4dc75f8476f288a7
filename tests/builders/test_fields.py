"""Every field of an agent's config is read when its parts are made and traced."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import pytest

from acme_ext import builders, envs
from acme_ext.acting.policy import Context
from acme_ext.errors import UsageError
from acme_ext.types import Sample

_RMSPROP, _IMAGES = {"rmsprop_decay", "rmsprop_epsilon"}, {"image_features"}
_PPO = {*_IMAGES, "init_stddev"}  # of continuous actions
UNREAD = {
    "a2c": {*_PPO, "max_abs_observation"},
    "agent57": {"n_step"},  # of first priorities
    "apex": _IMAGES | _RMSPROP,
    "bcq": _RMSPROP,
    "bdqn": _IMAGES | _RMSPROP,
    "discrete_cql": _RMSPROP,
    "discrete_sqil": _RMSPROP,
    "dqfd": _RMSPROP,
    "dqn": _RMSPROP,
    "muzero": {"random_share", "temperature_steps"},  # of sampled moves
    "ngu": {"n_step"},
    "ppo": _PPO,
    "r2d2": {"retrace_epsilon"},
    "r2d3": {"retrace_epsilon"},
    "rainbow": {*_IMAGES, *_RMSPROP, "huber_delta", "quantile_kappa"},  # of other distributions
    "rnd": _PPO,
}
"""By agent, the fields that its defaults, discrete actions or a vector as observation make unnecessary."""


def spec_for(builder):
    """Returns the spec of an environment that suits the agent."""
    for name in ("gym:CartPole-v1", "gym:Pendulum-v1"):
        with contextlib.closing(envs.canonical_actions(envs.make(name))) as environment:
            spec = envs.make_spec(environment)
        with contextlib.suppress(UsageError):
            builder.make_agent(spec)
            return spec
    return pytest.skip("it needs the rules of a game")


@pytest.mark.parametrize("name", sorted(builders.AGENTS))
def test_every_field_of_the_config_is_read(name, monkeypatch):
    builder = builders.load(name)()
    spec, kind, read = spec_for(builder), type(builder.config), set()

    def record(self, field):
        read.add(field)
        return object.__getattribute__(self, field)

    monkeypatch.setattr(kind, "__getattribute__", record)
    agent = builder.make_agent(spec)
    size = agent.replay.batch_size
    state = jax.eval_shape(agent.core.init, jax.random.key(0))
    jax.eval_shape(agent.core.step, state, Sample(agent.replay.example(size), jnp.ones(size)))
    params = jax.eval_shape(agent.core.variables, state)["policy"]
    observation = jax.tree.map(lambda s: jnp.zeros((1, *s.shape), s.dtype), spec.observations)
    for policy in (agent.policy, agent.evaluation_policy):
        keys, ones = jax.random.split(jax.random.key(1), 1), jnp.ones(1)
        context = Context(keys, jnp.int32(0), ones, ones, jnp.ones(1, bool), policy.init_policy_memory(1))
        jax.eval_shape(policy.apply, params, context, observation, policy.init_state(1))
    monkeypatch.undo()
    names = {field.name for field in dataclasses.fields(kind)}
    assert names - read == UNREAD.get(name, set())
