"""The same values are taken for the fields of configs, for settings given as text and for options of environments."""

import dataclasses
import json

import numpy as np
import pytest

from acme_ext import builders, envs, launch
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.config.assignments import configure_builder
from acme_ext.errors import UsageError
from acme_ext.utils import files

WAYS = {
    "a config": lambda value: DQNConfig(batch_size=value).batch_size,
    "a setting": lambda value: configure_builder(builders.DQN(), {"batch_size": value}).config.batch_size,
    "an environment's option": lambda value: envs.registry._resolve("explore:chain", {"size": value})[2]["size"],
    "an experiment": lambda value: launch.Experiment(builders.DQN(), "bsuite:catch/0", steps=value).steps,
}


@pytest.mark.parametrize("way", WAYS)
def test_numpys_numbers_are_taken_everywhere_and_become_plain_ones(way):
    taken = WAYS[way](np.int64(6))
    assert taken == 6
    assert type(taken) is int


@pytest.mark.parametrize("way", WAYS)
def test_floats_and_truth_values_are_no_whole_numbers_anywhere(way):
    for value in (64.0, np.float64(64), True, np.bool_(True)):
        with pytest.raises(UsageError, match="must be a whole number"):
            WAYS[way](value)


def test_numpys_numbers_and_lists_are_recorded_as_plain_ones():
    config = DQNConfig(
        batch_size=np.int16(64),
        learning_rate=np.float32(0.5),  # type: ignore[arg-type]
        double=np.bool_(False),  # type: ignore[arg-type]
        hidden_sizes=[np.int64(8), 4],  # type: ignore[arg-type]
    )
    assert config == DQNConfig(batch_size=64, learning_rate=0.5, double=False, hidden_sizes=(8, 4))
    assert hash(config)
    options = {"size": np.int64(7)}
    experiment = launch.Experiment(builders.DQN(config), "explore:chain", environment_options=options)
    described = json.loads(files.json_text(experiment.describe()))
    assert described["environment_options"] == {"size": 7}
    assert described["config"]["hidden_sizes"] == [8, 4]
    assert dataclasses.replace(experiment, environment_options={"size": 7}).directory == experiment.directory
