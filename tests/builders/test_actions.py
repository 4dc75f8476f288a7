"""The kinds of actions that each agent is for."""

import acme.specs
import numpy as np
import pytest
from acme import specs

from acme_ext import builders
from acme_ext.errors import UsageError

ACTIONS = {
    "discrete": specs.DiscreteArray(4),
    "bounded": specs.BoundedArray((2,), np.float32, -1, 1),
    "unbounded": specs.Array((2,), np.float32),
    "whole numbers": specs.BoundedArray((2,), np.int32, 0, 3),
}
CONTINUOUS = {"sac", "td3", "d4pg", "apex_dpg", "mpo", "dmpo", "td3_bc", "iql", "cql", "crr", "sqil"}
BOTH = {"ppo", "rnd", "a2c", "bc"}
GAMES = {"alphazero"}
TAKEN = {"discrete": builders.AGENTS.keys() - CONTINUOUS - GAMES, "bounded": CONTINUOUS | BOTH}


def refusal(name: str, spec: acme.specs.EnvironmentSpec) -> str | None:
    """What an agent says of an environment that it is not for."""
    try:
        builders.load(name)().make_agent(spec)
    except UsageError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", ACTIONS)
def test_every_agent_refuses_the_actions_that_it_is_not_for_by_its_name(kind):
    floats = specs.Array((3,), np.float32)
    rewards, discounts = specs.Array((), np.float32), specs.BoundedArray((), np.float32, 0, 1)
    spec = acme.specs.EnvironmentSpec(floats, ACTIONS[kind], rewards, discounts)
    refused = {name: refusal(name, spec) for name in builders.AGENTS}
    assert {name for name, text in refused.items() if text is None} == TAKEN.get(kind, set())
    for name in refused.keys() - GAMES:
        assert refused[name] is None or refused[name].startswith(
            f"{builders.AGENTS[name][0]} needs an environment with"
        )
