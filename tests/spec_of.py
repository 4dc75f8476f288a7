"""Environment specs for tests."""

import numpy as np
from dm_env import specs

from acme_ext.interfaces import EnvironmentSpec


def _spec(actions, shape, dtype):
    return EnvironmentSpec(
        observations=specs.Array(shape, dtype),
        actions=actions,
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
    )


def discrete(num_actions, shape=(3,), dtype=np.float32):
    """An environment with so many discrete actions and observations of a shape."""
    return _spec(specs.DiscreteArray(num_actions), shape, dtype)


def continuous(size, shape=(3,), dtype=np.float32):
    """An environment with an action of so many values in [-1, 1], and observations of a shape."""
    return _spec(specs.BoundedArray((size,), np.float32, -1.0, 1.0), shape, dtype)


def policy_of(builder, spec, *, evaluation):
    """The policy of a builder, in training or in evaluation."""
    agent = builder.make_agent(spec)
    return agent.evaluation_policy if evaluation else agent.policy
