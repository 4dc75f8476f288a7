"""A run's checkpoints: when the replay is written, and who reads it again."""

import dataclasses
import errno
import os

import pytest

from acme_ext import builders
from acme_ext.config.comparison import ABSENT
from acme_ext.errors import RunError, UsageError
from acme_ext.launch.runs.directory import prepare, say_differences
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.saving import Contents, RunCheckpoints
from acme_ext.launch.runs.schedule import Checkpoints
from acme_ext.launch.session import open_session
from acme_ext.utils import loggers
from acme_ext.utils.rundir import RunDirectory


class Replay:
    """Writes how often it was asked to."""

    def __init__(self):
        self.written = 0

    def checkpoint(self, folder):
        self.written += 1
        folder.mkdir()
        (folder / "rows").write_text(str(self.written))


@pytest.fixture
def rundir(tmp_path):
    (tmp_path / "run").mkdir()
    return RunDirectory(tmp_path / "run")


def rows(rundir, steps):
    return (rundir.checkpoints / f"{steps:012d}" / "replay" / "rows").read_text()


def test_the_replay_is_written_at_its_own_interval_and_at_the_end(rundir):
    replay = Replay()
    checkpoints = RunCheckpoints(rundir, Checkpoints(replay_every_s=1e6, keep=9), print)
    for steps in (10, 20, 30):
        checkpoints.save(steps, Contents({}, {}, replay))
    assert [rows(rundir, steps) for steps in (10, 20, 30)] == ["1", "1", "1"]
    checkpoints.save(40, Contents({}, {}, replay), last=True)
    assert rows(rundir, 40) == "2"
    # Each is whole by itself.
    assert RunCheckpoints(rundir, Checkpoints(), print).restore({}, 20).steps == 20


def test_a_disk_without_hard_links_has_copies(rundir, monkeypatch):
    def fail(source, target):
        raise PermissionError(errno.EPERM, "Operation not permitted", source)

    monkeypatch.setattr(os, "link", fail)
    checkpoints = RunCheckpoints(rundir, Checkpoints(replay_every_s=1e6), print)
    for steps in (10, 20):
        checkpoints.save(steps, Contents({}, {}, Replay()))
    assert rows(rundir, 20) == rows(rundir, 10) == "1"
    assert RunCheckpoints(rundir, Checkpoints(), print).restore({}).steps == 20


def test_without_an_interval_each_checkpoint_has_the_replay_of_its_time(rundir):
    replay = Replay()
    checkpoints = RunCheckpoints(rundir, Checkpoints(keep=9), print)
    for steps in (10, 20):
        checkpoints.save(steps, Contents({}, {}, replay))
    assert [rows(rundir, steps) for steps in (10, 20)] == ["1", "2"]


def test_a_replay_that_somebody_has_verified_is_not_read_again(rundir):
    RunCheckpoints(rundir, Checkpoints(), print).save(10, Contents({}, {"counts": 3}, Replay()))
    (rundir.checkpoints / f"{10:012d}" / "replay" / "rows").write_text("damaged")
    said = []
    checkpoints = RunCheckpoints(rundir, Checkpoints(), said.append)
    assert checkpoints.restore({}, 10).info == {"state": {"counts": 3}}
    assert said == []
    with pytest.raises(RunError):
        checkpoints.restore({})
    assert "rows" in said[0]


def test_rows_of_pretraining_after_the_checkpoint_are_deleted(tmp_path):
    experiment = Experiment(builders.DQN(), "gym:CartPole-v1", run_dir=tmp_path / "run")
    with open_session(prepare(experiment), experiment, print) as session:
        for learner_steps in (100, 200, 300):
            session.log("learner", {"environment_steps": 0, "learner_steps": learner_steps, "loss": 1.0})
        session.checkpoints.save(0, Contents({}, {"learner_steps": 200, "wall_time_s": 1.0}))
    with open_session(RunDirectory.open(tmp_path / "run"), experiment, print) as session:
        session.restore({})
    assert loggers.read_csv(tmp_path / "run/logs/learner.csv")["learner_steps"].tolist() == [100, 200]


def test_an_option_that_a_config_cannot_hold_is_refused_before_anything_is_made(tmp_path):
    experiment = Experiment(
        builders.DQN(), "gym:CartPole-v1", environment_options={"reward": print}, run_dir=tmp_path / "run"
    )
    with pytest.raises(UsageError, match="option 'reward' is <built-in function print>: it must be a number"):
        prepare(experiment)
    assert not (tmp_path / "run").exists()


def test_of_many_differences_the_first_are_told():
    told = say_differences({f"config.field{n}": (n, None) for n in range(11)})
    assert told.startswith("config.field0 is 0 there and None here; config.field1 is")
    assert told.endswith("config.field7 is 7 there and None here; and 3 more differ")
    other = {"seed": (0, 1), "agent": ("dqn", "sac"), "config.discount": (0.9, 0.99)}
    assert say_differences(other) == "agent is 'dqn' there and 'sac' here"


def test_another_kind_of_run_is_told_in_words():
    program = {"program.actors": (ABSENT, 2), "program.inference": (ABSENT, "actor"), "num_envs": (8, 1)}
    assert say_differences(program) == "that one is a run in one process and this one is a program"
    compiled = {"world": ("compiled", ABSENT)}
    assert say_differences(compiled) == "that one is a compiled run and this one is a run in one process"
    assert say_differences({**program, **compiled}) == "that one is a compiled run and this one is a program"
    assert say_differences({"program.actors": (2, 4)}) == "program.actors is 2 there and 4 here"
    assert say_differences({"data.sha256": ("6d", "2f")}) == "the recorded data has changed since"


@pytest.mark.parametrize(
    ("builder", "log", "rows", "said"),
    [
        (
            builders.MuZero(dataclasses.replace(builders.MuZero().config, support_size=3, rescaling_epsilon=None)),
            "learner",
            [{"target_abs_max": 3.0}, {"target_abs_max": 7.5}, {"target_abs_max": 9.0}],
            "a return of 7.5 was learned from, and with support_size 3 values reach 3 only",
        ),
        (
            builders.NGU(dataclasses.replace(builders.NGU().config, memory_rows=20)),
            "actor",
            [{"episode_length": 20}, {"episode_length": 21}, {"episode_length": 22}],
            "an episode had 21 steps, and its memory forgets all but the last 20",
        ),
    ],
)
def test_what_a_builder_says_of_a_row_is_told_once(tmp_path, builder, log, rows, said):
    experiment = Experiment(builder, "bsuite:catch/0", steps=10, run_dir=str(tmp_path / "run"))
    told = []
    with open_session(prepare(experiment), experiment, told.append) as session:
        for steps, row in enumerate(rows):
            session.log(log, {"environment_steps": steps, **row})
        session.log("evaluator", {"environment_steps": len(rows), "episode_return_mean": 1.0})
    assert len(told) == 1
    assert told[0].startswith(f"warning: {said}")
