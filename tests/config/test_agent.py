import dataclasses
from typing import Any

import pytest

from acme_ext import builders
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.agents.sac.config import SACConfig
from acme_ext.config.agent import AgentConfig
from acme_ext.config.assignments import configure_builder
from acme_ext.errors import UsageError


def builder_of(base: type, name: str, kind: type, default: Any) -> builders.Builder:
    """A DQN or SAC with a config that has one field more than its own."""
    config: Any = dataclasses.make_dataclass("MyConfig", [(name, kind, default)], bases=(base,), frozen=True)
    return builders.DQN(config()) if issubclass(base, DQNConfig) else builders.SAC(config())


@pytest.mark.parametrize(
    ("name", "kind", "default", "meant"),
    [
        ("normalise_observations", bool, True, "normalize_observations"),
        ("sgd_step_per_call", int, 8, "sgd_steps_per_call"),
        ("variable_periods", int, 8, "variable_period"),
        ("learning_rates", float, 0.1, "learning_rate"),
    ],
)
def test_a_field_that_is_nearly_one_of_its_base_is_refused(name, kind, default, meant):
    with pytest.raises(UsageError, match=rf"^MyConfig\.{name} is nearly the name of the field '{meant}'"):
        builder_of(DQNConfig, name, kind, default)


@pytest.mark.parametrize("base", [DQNConfig, SACConfig])
@pytest.mark.parametrize("name", ["margin", "variable_period", "target_rate"])
def test_a_new_field_and_one_that_is_declared_again_are_taken(base, name):
    assert getattr(builder_of(base, name, int, 1).config, name) == 1


def test_a_setting_that_a_config_does_not_declare_changes_nothing_and_can_not_be_set():
    assert DQNConfig().variable_period == 1
    assert "variable_period" not in {field.name for field in dataclasses.fields(DQNConfig)}
    with pytest.raises(UsageError, match="DQN has no setting 'variable_period'"):
        configure_builder(builders.DQN(), {"variable_period": "4"})
    with pytest.raises(UsageError, match="PPO has no setting 'random_shift'"):
        configure_builder(builders.PPO(), {"random_shift": "4"})


def test_a_setting_that_is_declared_keeps_the_rules_of_the_base():
    @dataclasses.dataclass(frozen=True)
    class Config(AgentConfig):
        sgd_steps_per_call: int = 8

    with pytest.raises(UsageError, match=r"^sgd_steps_per_call is 0: it must be at least 1"):
        Config(sgd_steps_per_call=0)


def test_a_config_of_another_base_is_refused_with_the_one_to_derive_it_from():
    @dataclasses.dataclass(frozen=True)
    class Config:
        batch_size: int = 8

    with pytest.raises(UsageError, match=r"derives from acme_ext\.config\.AgentConfig\.$"):
        builders.DQN(Config())  # type: ignore[arg-type]
