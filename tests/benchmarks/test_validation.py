"""The validation of defaults, with budgets too small to learn anything."""

import json
from unittest.mock import Mock

import pytest

from acme_ext import builders, envs
from acme_ext.config.assignments import configure_builder
from benchmarks.learning import validation
from benchmarks.learning.outcomes import Outcome


@pytest.mark.parametrize("name", validation.SUITES)
def test_agents_have_their_defaults_on_environments_that_no_default_was_chosen_on(name):
    chosen_on = {
        "gym:CartPole-v1",
        "bsuite:catch/0",
        "bsuite:memory_len/10",
        "minatar:breakout",
        "gym:Pendulum-v1",
        "dmc:cartpole/swingup",
    }
    made = validation.settings(name)
    assert len({environment for environment, _ in made}) >= {"discrete": 8, "continuous": 6}[name]
    for (environment, agent), setting in made.items():
        assert environment not in chosen_on
        envs.check_environment(environment)
        builder = builders.make(agent).for_environment(environment)
        assert setting.experiment(0, 10, "run").builder == configure_builder(builder, {})


def test_random_returns():
    # Ten episodes of each of ten environments: the ball falls beside the paddle twice in three times or more.
    assert -1 <= validation.random_return("bsuite:catch/0") < 0
    assert validation.random_return("gym:MountainCar-v0", episodes=10) == -200


def test_the_table_marks_what_stays_below_half_of_the_way(tmp_path):
    def agent(*scores):
        return {"version": "1", "date": "2026-01-01", "seeds": dict(enumerate(scores)), "faults": []}

    path = tmp_path / "validation.json"
    agents = {"dqn": agent(9.0, 11.0), "ppo": agent(4.0, 6.0), "a2c": agent(4.0, 5.0), "r2d2": agent(7.0)}
    entry = {"steps": 20_000, "random": 0.0, "agents": agents}
    path.write_text(json.dumps({"gym:X": entry, "gym:Acrobot-v1": entry}))
    elsewhere, acrobot = validation.table(path)[-2:]
    assert elsewhere == "| `gym:X` | 20,000 | 0 | 10 (9) | 5 (4) | **4.5 (4)** | 7 |"
    assert acrobot == r"| `gym:Acrobot-v1` | 20,000 | 0 | 10 (9) | 5 (4) | **4.5 (4)**\* | 7\* |"


def test_results_of_another_budget_are_removed(tmp_path, monkeypatch):
    random_return = Mock(return_value=-1.5)
    monkeypatch.setattr(validation, "random_return", random_return)
    path, environment = tmp_path / "validation.json", "bsuite:catch_scale/0"

    def write(agent, steps):
        setting = validation.Setting(agent, environment, steps, 8)
        found = {(environment, agent): [Outcome(0, 1.0, 1.0, 1.0, steps, 10, 1.0)]}
        validation.write(path, {(environment, agent): setting}, found)
        entry = json.loads(path.read_text())[environment]
        return entry["steps"], entry["random"], list(entry["agents"])

    assert write("dqn", 100) == (100, -1.5, ["dqn"])
    assert write("ppo", 100) == (100, -1.5, ["dqn", "ppo"])
    assert write("ppo", 200) == (200, -1.5, ["ppo"])
    assert random_return.call_count == 1


@pytest.mark.release
def test_runs_are_added_to_what_was_found(tmp_path, capsys):
    arguments = ["discrete", "--environments", "bsuite:catch_scale/16", "--seeds", "100", "--steps", "300"]
    arguments += ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]
    for agent in ("a2c", "ppo"):
        assert validation.main([*arguments, "--agents", agent]) == 0
    written = json.loads((tmp_path / "validation-discrete.json").read_text())
    assert list(written["bsuite:catch_scale/16"]["agents"]) == ["a2c", "ppo"]
    assert validation.main([*arguments, "--agents", "ppo"]) == 0
    assert "is finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong", [["--agents", "dqm"], ["--environments", "gym:CartPole-v1"], ["--seeds", "1", "1"], ["--jobs", "0"]]
)
def test_what_cannot_be_asked_for_is_refused(wrong, capsys):
    assert validation.main(["discrete", *wrong]) == 2
    assert "benchmarks.learning.validation: " in capsys.readouterr().err
