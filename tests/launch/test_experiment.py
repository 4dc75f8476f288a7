import dataclasses
import json
import pickle
import re
from functools import partial
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from toys import Toy, ToyConfig, Walk, make_walk, toy

from acme_ext import envs
from acme_ext.agents.dqn.config import ATARI, DQNConfig
from acme_ext.builders import DQN
from acme_ext.config.assignments import restore_config
from acme_ext.config.values import named
from acme_ext.errors import UsageError
from acme_ext.launch import Checkpoints, Evaluation, Experiment
from acme_ext.launch.runs.validation import check_agent


@dataclasses.dataclass(frozen=True)
class Task:
    """A factory with a setting."""

    length: int

    def __call__(self, seed: int, evaluation: bool) -> Walk:
        return Walk(seed, self.length)


def full() -> Experiment:
    return Experiment(
        Toy(ToyConfig(order="queue")),
        Task(5),
        steps=7,
        seed=3,
        num_envs=2,
        evaluation=Evaluation(every=4),
        checkpoints=Checkpoints(every_s=0.5),
        run_dir="somewhere",
    )


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        full().seed = 4  # type: ignore[misc]


@pytest.mark.parametrize("tried", [full(), Experiment(DQN(), "gym:CartPole-v1", environment_options={"a": (1, 2)})])
def test_a_copy_through_pickle_is_equal_and_makes_the_same(tried):
    copy = pickle.loads(pickle.dumps(tried))
    assert copy == tried
    assert copy.describe() == tried.describe()


def test_the_copy_makes_the_same_environments():
    tried = full()
    for one, other in zip(
        tried.make_environment(2).environments,  # type: ignore[attr-defined]
        pickle.loads(pickle.dumps(tried)).make_environment(2).environments,
        strict=True,
    ):
        assert (one.seed, one.length) == (other.seed, other.length) == (one.seed, 5)


def test_its_description_is_json_from_which_the_config_comes_back():
    config = dataclasses.replace(ATARI, hidden_sizes=(5, 6), huber_delta=None)
    tried = Experiment(DQN(config), "atari:Pong", environment_options={"sticky": 0.25, "shape": (84, 84)})
    described = json.loads(json.dumps(tried.describe()))
    assert described["agent"] == "dqn"
    assert described["environment"] == "atari:Pong"
    assert described["environment_options"] == {"sticky": 0.25, "shape": [84, 84]}
    assert described["run"]["steps"] == 50_000
    assert restore_config(DQNConfig, described["config"]) == config
    assert restore_config(Evaluation, described["run"]["evaluation"]) == tried.evaluation
    assert restore_config(Checkpoints, described["run"]["checkpoints"]) == tried.checkpoints


def test_how_far_and_how_closely_watched_is_no_part_of_what_is_run():
    one = Experiment(DQN(), "gym:CartPole-v1").describe()
    longer = Experiment(DQN(), "gym:CartPole-v1", steps=9, evaluation=Evaluation(every=0), run_dir="x").describe()
    assert {**one, "run": None} == {**longer, "run": None}
    for other in ({"seed": 1}, {"num_envs": 2}, {"environment_options": {"a": 1}}):
        assert Experiment(DQN(), "gym:CartPole-v1", **other).describe() != one


@pytest.mark.parametrize(
    ("every", "steps", "scheduled", "expected"),
    [
        (20, 50, 60, 60),
        (20, 50, 1000, 60),  # before, there were fewer evaluations
        (1000, 50, 60, 1000),  # or more
        (20, 50, 40, 40),  # the run was stopped before it was made
        (1000, 50, 40, 40),
        (20, 40, 0, 60),  # there were none
        (0, 50, 40, 0),
    ],
)
def test_a_resumed_run_follows_the_new_schedule_of_evaluations(every, steps, scheduled, expected):
    assert Evaluation(every=every).resumed(steps, scheduled) == expected


@pytest.mark.parametrize(
    ("environment", "name", "folder"),
    [
        ("gym:CartPole-v1", "gym:CartPole-v1", "toy-gym-CartPole-v1-s7"),
        ("dmc:cartpole/swingup", "dmc:cartpole/swingup", "toy-dmc-cartpole-swingup-s7"),
        (make_walk, "py:toys:make_walk", "toy-py-toys-make_walk-s7"),
        (named("task 3", Task(3)), "task 3", "toy-task-3-s7"),
        (partial(Walk, length=3), "py:toys:Walk", "toy-py-toys-Walk-s7"),
    ],
)
def test_the_default_directory_is_named_by_what_is_run(environment, name, folder):
    tried = Experiment(toy(), environment, seed=7)
    assert tried.environment_name == name
    assert tried.directory == Path("runs") / folder


@pytest.mark.parametrize(
    ("experiment", "folder"),
    [
        (Experiment(DQN(DQNConfig(learning_rate=3e-4)), "gym:A-v0"), "dqn-gym-A-v0-learning_rate=0.0003-s0"),
        (
            Experiment(DQN(DQNConfig(hidden_sizes=(32, 16), dueling=True, huber_delta=1.0)), "gym:A-v0", seed=2),
            "dqn-gym-A-v0-hidden_sizes=32x16-dueling=true-huber_delta=1.0-s2",
        ),
        (
            Experiment(DQN(), "gym:A-v0", environment_options={"map": "4/4", "size": {"x": 0.5}}),
            "dqn-gym-A-v0-map=4-4-size.x=0.5-s0",
        ),
        # What an agent takes for an environment anyway is no choice.
        (Experiment(DQN(ATARI), "atari:Pong"), "dqn-atari-Pong-s0"),
        (Experiment(DQN(dataclasses.replace(ATARI, batch_size=5)), "atari:Pong"), "dqn-atari-Pong-batch_size=5-s0"),
    ],
)
def test_the_default_directory_says_what_was_chosen(experiment, folder):
    assert experiment.directory == Path("runs") / folder
    assert dataclasses.replace(experiment, steps=9).directory == experiment.directory


def test_of_many_choices_the_default_directory_has_some_and_a_digest():
    many = {"discount": 0.5, "batch_size": 64, "learning_rate": 2e-3, "max_gradient_norm": 1.0, "huber_delta": 8.0}
    replays = [dataclasses.replace(DQNConfig.replay, min_size=size) for size in (1, 2, 1)]
    folders = [Experiment(DQN(DQNConfig(**many, replay=each)), "gym:A-v0").directory.name for each in replays]
    assert folders[0] == folders[2] != folders[1]
    assert re.fullmatch(r"dqn-gym-A-v0-discount=0.5-batch_size=64-4more-[0-9a-f]{8}-s0", folders[0])


def test_a_directory_that_is_given_is_taken():
    assert Experiment(toy(), make_walk, run_dir="a/b").directory == Path("a/b")


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (
            partial(Experiment, toy(), make_walk),
            {"steps": 0, "num_envs": 0, "num_devices": 0, "seed": -1, "run_dir": 3, "checkpoints": 9},
        ),
        (partial(Experiment, toy(), make_walk), {"seed": 2**31, "steps": 9.0}),
        (Evaluation, {"every": -1, "episodes": 0, "final_episodes": 0, "num_envs": 0}),
        (Checkpoints, {"every_s": -1, "replay_every_s": -1, "keep": 0}),
    ],
)
def test_the_settings_of_a_run_refuse_values_that_break_the_rule_of_a_field(make, wrong):
    for name, value in wrong.items():
        with pytest.raises(UsageError, match=rf"^(evaluation\.|checkpoints\.)?{name} is {re.escape(str(value))}"):
            make(**{name: value})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Experiment(DQN, make_walk), r"^builder is the class DQN: give an object of it, DQN\(\)\.$"),
        (
            lambda: Experiment("dqn", make_walk),
            r"^builder is a str: it must be a Builder, such as acme_ext\.builders\.DQN",
        ),
        (
            lambda: Experiment(toy(), make_walk, environment_options=3),
            "^environment_options is 3: it must be a dict",
        ),
        (lambda: Experiment(toy(), make_walk, environment_options={1: 2}), "the name of an environment's option is 1:"),
        (
            lambda: Experiment(toy(), make_walk, evaluation=Evaluation),
            "^evaluation is the class Evaluation: it must be an ",
        ),
        (
            lambda: Experiment(DQN(DQNConfig), make_walk),
            "^the config of DQN is the class DQNConfig: it must be an object of ",
        ),
        (
            lambda: Experiment(DQN(ToyConfig()), make_walk),
            "^DQN takes a DQNConfig, not a ToyConfig",
        ),
        (
            lambda: Experiment(toy(), gymnasium.make("CartPole-v1")),
            r"give its name, 'gym:CartPole-v1', or a function fact",
        ),
        (
            lambda: Experiment(toy(), CartPoleEnv()),
            r"the environment is a CartPoleEnv of gymnasium: .* so give a function",
        ),
        (
            lambda: Experiment(toy(), Walk(0)),
            r"the environment is a Walk: .* or a function factory\(seed, evaluation\) that",
        ),
        (lambda: Experiment(toy(), None), "the environment is a NoneType: a run makes its environments itself"),
    ],
)
def test_builders_configs_and_environments_of_another_kind_are_refused_with_what_is_right(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_the_agent_is_checked_against_the_environment():
    spec = envs.make_spec(envs.make("gym:Pendulum-v1"))
    with pytest.raises(UsageError, match=r"DQN needs an environment with one discrete action"):
        check_agent(Experiment(DQN(), "gym:Pendulum-v1"), spec)
    with pytest.raises(UsageError, match=r"min_size <= 10 or a larger max_size"):
        check_agent(Experiment(toy(max_size=10, min_size=11), make_walk), envs.make_spec(Walk(0)))


def test_the_keys_of_the_parts_and_of_the_seeds_differ():
    keys = [
        jax.random.key_data(Experiment(toy(), make_walk, seed=seed).key(part)).tolist()
        for seed in (0, 1)
        for part in ("learner", "actor", "evaluator")
    ]
    assert len({tuple(key) for key in keys}) == 6


def test_environments_of_one_seed_are_the_same_and_of_another_are_not():
    def first(seed: int, part: int) -> np.ndarray:
        with Experiment(toy(), "gym:CartPole-v1", seed=seed).make_environment(2, part=part) as environment:
            return environment.reset().observation.copy()

    np.testing.assert_array_equal(first(1, 0), first(1, 0))
    np.testing.assert_array_equal(first(1, 2), first(1, 2))
    for seed, part in ((2, 0), (1, 1), (1, 2)):
        assert not np.any(first(1, 0) == first(seed, part))
