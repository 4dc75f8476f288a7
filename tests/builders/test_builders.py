import dataclasses
import importlib
import pickle
import subprocess
import sys

import haiku as hk
import numpy as np
import pytest
from spec_of import continuous, discrete

from acme_ext import builders
from acme_ext.acting.policy import Policy
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.agents.impala.config import ATARI as IMPALA_ATARI
from acme_ext.builders.base import Builder
from acme_ext.config.agent import AgentConfig
from acme_ext.errors import UsageError
from acme_ext.learning.core import LearnerCore
from acme_ext.replay.config import TransitionConfig

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
def test_a_setting_is_the_builders_or_its_configs(name):
    builder = builders.load(name)()
    own, configs = ({field.name for field in dataclasses.fields(part)} for part in (builder, builder.config))
    assert not own & configs, "--set reaches only one of two fields of one name"


@pytest.mark.parametrize("name", sorted({*_AGENTS} - {"alphazero"}))  # which takes board games alone
def test_every_agent_asks_the_users_torso_for_features_of_pictures(name):
    calls = []

    def torso():
        calls.append(name)
        return lambda observation: hk.Linear(7)(observation.reshape(len(observation), -1).astype(np.float32))

    builder = builders.load(name)
    spec = (continuous if builder.actions == "continuous" else discrete)(2, (10, 10, 4), np.uint8)
    builder(torso=torso).make_agent(spec).core.abstract_state()
    assert calls


@pytest.mark.parametrize("name", _AGENTS)
def test_presets_are_configs_of_families(name):
    from acme_ext import envs

    cls = builders.load(name)
    assert cls().for_environment("nowhere:x") == cls()
    assert set(cls.presets) <= {"atari", "board", "dmc", "minatar"}
    for kind, preset in cls.presets.items():
        assert envs.kind(f"{kind}:anything") == kind
        assert cls().for_environment(f"{kind}:anything") == cls(**preset.fields)
        assert type(preset.fields["config"]) is type(cls().config)


@pytest.mark.parametrize(("family", "game"), [("atari", "MontezumaRevenge"), ("envpool", "MontezumaRevenge-v5")])
@pytest.mark.parametrize("name", ["apex", "r2d2", "ngu", "agent57", "rnd"])
def test_the_options_of_atari_presets_are_the_familys(name, family, game):
    from acme_ext import envs

    options = builders.load(name).presets["atari"].environment[family]
    environment = envs.make(f"{family}:{game}", **options)
    environment.reset()
    assert environment.step(np.zeros(1, np.int32)).discount == [1.0]
    environment.close()


@pytest.mark.parametrize("name", ["bc", "bcq", "discrete_cql"])
def test_agents_of_recorded_data_have_dqns_size_on_minatar(name):
    theirs, dqn = (builders.load(each)().for_environment("minatar:breakout").config for each in (name, "dqn"))
    assert theirs.image_features == dqn.image_features
    if name != "bc":
        usual = {f.name for f in dataclasses.fields(dqn)} - {"double"}
        assert all(getattr(theirs, field) == getattr(dqn, field) for field in usual)


def test_a_preset_yields_to_what_the_user_sets_and_leaves_with_the_environment():
    mine = DQNConfig(learning_rate=0.5)
    assert builders.DQN(mine).for_environment("atari:Pong").config is mine
    impala = builders.IMPALA(core="lstm").for_environment("atari:Pong")
    assert (impala.config, impala.core, impala.torso) == (IMPALA_ATARI, "lstm", "residual")
    assert builders.IMPALA(torso="nature").for_environment("atari:Pong").torso == "nature"
    # The preset is not taken along to another environment, nor by way of another process.
    for builder in (impala, pickle.loads(pickle.dumps(impala))):
        elsewhere = builder.for_environment("gym:CartPole-v1")
        assert (elsewhere.config, elsewhere.core, elsewhere.torso) == (builders.IMPALA().config, "lstm", None)


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ("atari:Pong", "atari"),
        ("envpool:Pong-v5", "atari"),
        ("gym:ALE/Pong-v5", "atari"),
        ("envpool:CartPole-v1", None),
        ("envpool:Pendulum-v1", None),
        ("envpool:HalfCheetah-v4", None),
        ("envpool:CartpoleSwingup-v1", "dmc"),
        ("dmc:cartpole/swingup", "dmc"),
        ("minatar:breakout", "minatar"),
        ("gym:MinAtar/Breakout-v1", "minatar"),
        ("gym:CartPole-v1", None),
        ("py:my_envs:make_maze", None),
        (lambda seed, evaluation: None, None),
    ],
)
def test_presets_go_by_what_an_environment_is(environment, kind):
    from acme_ext import envs

    assert envs.kind(environment) == kind


_DESCRIBING = """
from jax._src import xla_bridge
from acme_ext import builders, envs
from acme_ext.errors import UsageError
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.validation import check_agent

names = ("gym:CartPole-v1", "gym:Pendulum-v1")
specs = [envs.make_spec(envs.canonical_actions(envs.make(name))) for name in names]
described = 0
agents = [builders.load(name)() for name in builders.AGENTS]
for builder in [builders.IMPALA(core="lstm"), builders.PPO(core="gru"), *agents]:
    for spec in specs:
        try:
            check_agent(Experiment(builder, "gym:CartPole-v1", steps=1), spec)
        except UsageError:  # these are not its actions
            continue
        assert builder.make_agent(spec).replay.split(2)._layout.nbytes > 0
        assert not xla_bridge.backends_are_initialized(), builder
        described += 1
print(described)
"""


@pytest.mark.release
def test_agents_are_described_without_starting_jax():
    """A program's processes are forked after it, and JAX's threads would not come along."""
    output = subprocess.run([sys.executable, "-c", _DESCRIBING], check=True, capture_output=True, text=True).stdout
    assert int(output) >= 2 + len(_AGENTS)


def test_names_that_are_none():
    with pytest.raises(UsageError, match=r"there is no agent 'dnq': did you mean 'dqn' or 'dqfd' or 'bdqn'\?"):
        builders.load("dnq")
    with pytest.raises(AttributeError, match="has no attribute 'DNQ'"):
        builders.DNQ  # noqa: B018
    assert builders.Builder is Builder


def test_a_builder_writes_three_methods():
    assert Builder.__abstractmethods__ == {"make_networks", "make_policy", "make_core"}

    @dataclasses.dataclass(frozen=True)
    class Config(AgentConfig):
        replay: TransitionConfig = TransitionConfig(min_size=3)
        batch_size: int = 4
        discount: float = 0.5

    @dataclasses.dataclass(frozen=True)
    class Least(Builder):
        name = "least"
        config: Config = Config()

        def make_networks(self, spec):
            return "networks"

        def make_policy(self, spec, networks, *, evaluation=False) -> Policy:
            return Policy(lambda *arguments: (networks, evaluation))

        def make_core(self, spec, networks) -> LearnerCore:
            return LearnerCore(lambda key: networks, lambda state, sample: None, lambda state: {})

    assert Least().for_environment("gym:CartPole-v1") == Least()
    agent = Least().make_agent(discrete(2))
    assert (agent.sgd_steps_per_call, agent.variable_period) == (1, 1)
    assert (agent.replay.batch_size, agent.replay.discount, agent.replay.limit.min_size) == (4, 0.5, 3)
    assert agent.policy.apply() == ("networks", False)
    assert agent.evaluation_policy.apply() == ("networks", True)
    assert not Least.presets
