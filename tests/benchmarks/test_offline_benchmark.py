"""Learning from recorded data, with budgets too small to learn anything."""

import json
from unittest.mock import Mock

import pytest

from acme_ext import builders, envs
from acme_ext.config.assignments import configure_builder
from benchmarks.learning import offline
from benchmarks.learning.offline import Bar, Data, Learner, Part, Trained


def entry(data, **seeds):
    """What the JSON file has of data whose behaviour scores 50, with learners of these returns."""
    recorded = {"random": -100.0, "expert": 100.0, "returns": [0.0], "steps": 10, "episodes": 2, "trained_steps": [7]}
    return {
        "recorded": recorded,
        "seeds": {label: dict(enumerate(returns)) for label, returns in seeds.items()},
        "steps": 20_000,
    }


def test_every_name_stands_for_something_that_fits():
    for data in offline.DATA.values():
        environment = offline.TRAINED[data.expert].environment
        envs.check_environment(environment)
        replayed = {part.trained for part in data.parts if part.policy == "replay"}
        others = [other for other in offline.DATA.values() if other is not data]
        assert not replayed & {name for other in others for name in (other.expert, *(p.trained for p in other.parts))}
        assert {offline.TRAINED[part.trained].environment for part in data.parts} == {environment}
        for learner in offline.LEARNERS[data.learners].values():
            configure_builder(builders.make(learner.agent).for_environment(environment), learner.config)
    for bar in offline.BARS:
        learners = offline.LEARNERS[offline.DATA[bar.data].learners]
        assert set(bar.learners) <= set(learners)
        assert bar.than in {None, "behaviour", *learners}


def test_scores_are_0_of_random_actions_and_100_of_the_expert():
    found = offline.scores(entry("pendulum-medium", bc=[-100.0, 100.0, 50.0]))
    assert found == {"behaviour": [50.0], "bc": [0.0, 100.0, 75.0]}


@pytest.mark.parametrize(
    ("kind", "score", "reached"),
    [
        ("at least", 60.0, True),
        ("at least", 59.9, False),
        ("above", 60.0, False),
        ("above", 60.1, True),
        ("below", 60.0, False),
        ("below", 59.9, True),
        ("within", 40.0, True),
        ("within", 60.1, False),
    ],
)
def test_what_reaches_a_bar(kind, score, reached):
    assert Bar("pendulum-medium", ("bc",), "behaviour", 10, kind).reached(score, 50.0) is reached


def test_the_table_has_each_score_and_each_bar(tmp_path):
    path = tmp_path / "offline.json"
    path.write_text(json.dumps({"pendulum-medium": entry("pendulum-medium", bc=[0.0, 30.0], iql=[10.0, 20.0])}))
    lines = offline.table(path)
    assert "| behaviour | 50 |  |" in lines
    assert "| bc | 58 (50) | `hidden_sizes=64,64` |" in lines
    assert "| `pendulum-medium` | bc | within 10 of behaviour | 57.5 | 50.0 | reached after a change |" in lines
    assert "| `pendulum-medium` | iql | at least behaviour + 20 | 57.5 | 50.0 | **MISSED** after a change |" in lines
    of_agent = offline.agent_table("iql", path)
    assert (
        of_agent[2]
        == "| `pendulum-medium` | 20,000 | 2 | 50 | 58 | 55 | at least behaviour + 20: MISSED after a change |"
    )
    assert offline.agent_table("cql", path) == []


def test_scores_after_another_number_of_learner_steps_are_removed(tmp_path, monkeypatch):
    made = entry("pendulum-medium")["recorded"]
    monkeypatch.setattr(offline, "make", lambda name, recorded: made)
    monkeypatch.setattr(offline, "_experiment", Mock())
    monkeypatch.setattr(offline.learning, "finished", lambda experiment: True)
    monkeypatch.setattr(offline.RunDirectory, "open", lambda path: Mock(read_evaluation=lambda: {"returns": [1.0]}))

    def learners(agent, steps):
        arguments = ["--data", "pendulum-medium", "--agents", agent, "--seeds", "0", "--steps", str(steps)]
        offline.main([*arguments, "--runs", str(tmp_path)])
        written = json.loads((tmp_path / "offline.json").read_text())["pendulum-medium"]
        return written["steps"], list(written["seeds"])

    assert learners("bc", 40) == (40, ["bc"])
    assert learners("iql", 40) == (40, ["bc", "iql"])
    assert learners("iql", 80) == (80, ["iql"])


@pytest.mark.release
def test_data_is_made_learned_from_and_judged_and_not_made_again(tmp_path, capfd, monkeypatch):
    catch, small = "bsuite:catch/0", {"hidden_sizes": "8", "batch_size": "8"}
    monkeypatch.setattr(offline, "TRAINED", {name: Trained("dqn", catch, 300, 2) for name in ("tiny", "other")})
    replay = (Part("other", "replay", 300),)
    mixed = (Part("tiny", "random", 50), Part("tiny", "evaluation", 50))
    data = {"replay": Data("all", "tiny", replay, "all"), "mixed": Data("both", "tiny", mixed, "all")}
    monkeypatch.setattr(offline, "DATA", data)
    learners = {"bc": Learner("bc", small), "10% bc": Learner("bc", small, best=0.1), "dqn": Learner("dqn", small)}
    monkeypatch.setattr(offline, "LEARNERS", {"all": learners})
    monkeypatch.setattr(offline, "BARS", (Bar("mixed", ("bc",), None, -1_000),))
    arguments = ["--data", *data, "--seeds", "100", "--steps", "40", "--runs", str(tmp_path)]
    assert offline.main(arguments) == 0
    written = json.loads((tmp_path / "offline.json").read_text())
    assert written["replay"]["recorded"]["steps"] == 288  # whole episodes of 9 steps
    assert written["mixed"]["recorded"]["steps"] >= 100
    assert all(set(each["seeds"]) == set(learners) for each in written.values())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("evaluation.json")}
    assert offline.main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("evaluation.json")} == before
    assert offline.main([*arguments, "--agents", "bc", "--set", "learning_rate=1e-3"]) == 2
    assert "holds another run: config.learning_rate" in capfd.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [["--data", "pendulum"], ["--agents", "icl"], ["--seeds", "1", "1"], ["--steps", "0"], ["--set", "discount=0.9"]],
)
def test_what_cannot_be_asked_for_is_refused(wrong, capsys):
    assert offline.main(wrong) == 2
    assert "benchmarks.learning.offline: " in capsys.readouterr().err
