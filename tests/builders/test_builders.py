import dataclasses
import importlib
import pickle
import subprocess
import sys

import pytest

from acme_ext import builders
from acme_ext.acting.policy import Policy
from acme_ext.builders.base import Builder
from acme_ext.errors import UsageError
from acme_ext.learning.core import LearnerCore

_AGENTS = sorted(builders.AGENTS)


@pytest.mark.parametrize("name", _AGENTS)
def test_every_agent_is_found_by_its_names(name):
    cls = builders.load(name)
    class_name, summary = builders.AGENTS[name]
    assert issubclass(cls, Builder)
    assert cls.name == name
    assert (
        getattr(builders, class_name)
        is cls
        is getattr(importlib.import_module(f"acme_ext.builders.{name}"), class_name)
    )
    assert summary == summary.strip(". \n")
    assert "\n" not in summary


@pytest.mark.parametrize("name", _AGENTS)
def test_every_agent_is_a_frozen_value_that_can_be_sent(name):
    builder = builders.load(name)()
    assert pickle.loads(pickle.dumps(builder)) == builder
    assert dataclasses.is_dataclass(builder.config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        builder.config = None
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(builder.config, dataclasses.fields(builder.config)[0].name, None)
    assert hash(builder.config) == hash(type(builder.config)())


@pytest.mark.parametrize("name", _AGENTS)
def test_presets_are_configs_of_families(name):
    from acme_ext import envs

    cls = builders.load(name)
    assert cls.for_environment("nowhere:x") == cls()
    assert set(cls.presets) <= {family.name for family in envs.families()}
    for family, config in cls.presets.items():
        assert type(config) is type(cls().config)
        assert cls.for_environment(f"{family}:anything") == cls(config)


_DESCRIBING = """
from jax._src import xla_bridge
from acme_ext import builders, envs
from acme_ext.agents.impala.config import IMPALAConfig
from acme_ext.errors import UsageError
from acme_ext.launch.experiment import Experiment, check

specs = [envs.make_spec(envs.make(name, num_envs=1, seed=0)) for name in ("gym:CartPole-v1", "gym:Pendulum-v1")]
described = 0
for builder in [builders.IMPALA(IMPALAConfig(lstm_size=3)), *(builders.load(name)() for name in builders.AGENTS)]:
    for spec in specs:
        try:
            check(Experiment(builder, "gym:CartPole-v1", steps=1), spec)
        except UsageError:  # these are not its actions
            continue
        assert builder.make_replay(spec).split(2)._layout.nbytes > 0
        assert not xla_bridge.backends_are_initialized(), builder
        described += 1
print(described)
"""


@pytest.mark.slow
def test_agents_are_described_without_starting_jax():
    """A program's processes are forked after it, and JAX's threads would not come along."""
    output = subprocess.run([sys.executable, "-c", _DESCRIBING], check=True, capture_output=True, text=True).stdout
    assert int(output) >= 1 + len(_AGENTS)


def test_names_that_are_none():
    with pytest.raises(UsageError, match=r"there is no agent 'dnq': did you mean 'dqn'\?"):
        builders.load("dnq")
    with pytest.raises(AttributeError, match="has no attribute 'DNQ'"):
        builders.DNQ  # noqa: B018
    assert builders.Builder is Builder


def test_a_builder_writes_three_methods():
    assert Builder.__abstractmethods__ == {"make_replay", "make_policy", "make_core"}

    @dataclasses.dataclass(frozen=True)
    class Least(Builder):
        name = "least"
        config: int = 1

        def make_replay(self, spec):
            raise NotImplementedError

        def make_policy(self, spec, *, evaluation=False) -> Policy:
            raise NotImplementedError

        def make_core(self, spec) -> LearnerCore:
            raise NotImplementedError

    assert Least.for_environment("gym:CartPole-v1") == Least()
    assert Least().sgd_steps_per_call == 1
    assert not Least.presets
