"""The run directory: config, lock, paths."""

import errno
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from acme_ext.config.comparison import ABSENT, differences
from acme_ext.errors import RunError, UsageError
from acme_ext.utils import files
from acme_ext.utils.rundir import RunDirectory

_CONFIG = {
    "agent": "dqn",
    "environment": "gym:CartPole-v1",
    "seed": 0,
    "config": {"learning_rate": 3e-4, "sizes": (64, 64), "schedule": {}},
    "run": {"steps": 9},
}


def test_config_is_read_back_and_the_folders_stand(tmp_path):
    run = RunDirectory(tmp_path / "a" / "b")
    assert not run.exists_run()
    assert list(run.path.iterdir()) == []
    run.write_config(_CONFIG)
    assert run.exists_run()
    assert run.read_config() == {**_CONFIG, "config": {"learning_rate": 3e-4, "sizes": [64, 64], "schedule": {}}}
    assert all(folder.is_dir() for folder in (run.logs, run.tensorboard, run.checkpoints, run.replay))
    assert (run.curve.name, run.evaluation.name) == ("curve.png", "evaluation.json")
    assert RunDirectory.open(run.path).read_config() == run.read_config()


def test_compare_names_the_differing_fields(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_config({**_CONFIG, "old": math.nan, "gone": 1})
    assert run.compare({**_CONFIG, "old": math.nan, "gone": 1.0}) == {}
    # A later version has added a field: left out of use, it makes no other run.
    assert run.compare({**_CONFIG, "old": math.nan, "gone": 1.0, "later": None}) == {}
    assert list(run.compare({**_CONFIG, "old": math.nan, "gone": 1.0, "later": 0})) == ["later"]
    # None of an option is not its default.
    assert list(differences({"environment_options": {"a": 1}}, {"environment_options": {"a": 1, "b": None}})) == [
        "environment_options.b"
    ]
    here = {**_CONFIG, "seed": 1, "old": math.nan, "new": [1], "config": {**_CONFIG["config"], "sizes": (64,)}}
    assert run.compare(here) == {
        "seed": (0, 1),
        "config.sizes": ([64, 64], [64]),
        "gone": (1, ABSENT),
        "new": (ABSENT, [1]),
    }


def test_evaluation_round_trip(tmp_path):
    run = RunDirectory(tmp_path)
    with pytest.raises(UsageError, match=r"evaluation\.json can't be read"):
        run.read_evaluation()
    run.write_evaluation({"episode_return_mean": 475.5, "episode_returns": [500.0, 451.0]})
    assert run.read_evaluation() == {"episode_return_mean": 475.5, "episode_returns": [500.0, 451.0]}


def test_open_says_what_was_looked_for_and_makes_nothing(tmp_path):
    RunDirectory(tmp_path / "cartpole").write_config(_CONFIG)
    with pytest.raises(UsageError, match=r"there is no such folder\. did you mean 'cartpole'\?"):
        RunDirectory.open(tmp_path / "cartpol")
    with pytest.raises(UsageError, match=r"not a run directory: there is no config\.json in it"):
        RunDirectory.open(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["cartpole"]


def test_an_unwritable_place_is_a_usage_error(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match="is a file"):
        RunDirectory(file)
    with pytest.raises(UsageError, match="can't be written: Not a directory"):
        RunDirectory(file / "run")

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UsageError, match="can't be written: Permission denied"):
        RunDirectory(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "says"), [("~nobody_here/run", "can't be found: "), ("x" * 300, "can't be read: File name too long")]
)
@pytest.mark.parametrize("call", [RunDirectory, RunDirectory.open])
def test_a_place_that_can_not_be_is_a_usage_error(name, says, call):
    with pytest.raises(UsageError, match=says):
        call(name)


def test_a_place_that_may_not_be_seen_is_a_usage_error(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(UsageError, match="can't be read: Permission denied"):
        RunDirectory.open(tmp_path / "run")


def test_a_folder_whose_making_failed_is_a_run_directory(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = RunDirectory(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        with pytest.raises(RunError, match="is full"):
            run.write_config({**_CONFIG, "environment": "gym:CartPole-v1", "run": {}})
    assert run.exists_run()


def test_a_lock_on_another_disk_is_another_lock(tmp_path, monkeypatch):
    run, lines = RunDirectory(tmp_path), []
    with run.lock():
        assert run.holder.startswith(f"process {os.getpid()} on ")
        there = (tmp_path / "lock").stat()
    disk = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}"
    read = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path, **of: "\n".join(lines) if str(path) == "/proc/locks" else read(path, **of)
    )
    for pid, where, held in (
        (1, disk, True),
        (1, "aa:bb", False),
        (os.getpid(), "aa:bb", True),
        (1, f"{disk}9", False),
    ):
        lines[:] = [f"1: FLOCK  ADVISORY  WRITE {pid} {where}:{there.st_ino} 0 EOF"]
        assert (run.holder is not None) == held


def test_a_full_disk_is_a_run_error_and_keeps_the_config(tmp_path, monkeypatch):
    run = RunDirectory(tmp_path)
    run.write_config(_CONFIG)
    before = run.read_config()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(RunError, match="is full"):
            RunDirectory(tmp_path / "other")
    monkeypatch.setattr(files, "fsync", full)
    with pytest.raises(RunError, match="is full"):
        run.write_config({"agent": "other"})
    assert run.read_config() == before


def test_a_second_holder_is_refused_until_the_first_lets_go(tmp_path):
    run = RunDirectory(tmp_path)
    with run.lock():
        with pytest.raises(UsageError, match=f"another run holds .* \\(process {os.getpid()} on "):
            RunDirectory(tmp_path).lock().__enter__()
        with pytest.raises(UsageError, match="another run holds"), run.lock():
            pass
    with run.lock():
        pass


def test_the_lock_dies_with_its_process_even_if_a_forked_child_lives(tmp_path):
    code = (
        "import os, sys, time\n"
        "from acme_ext.utils.rundir import RunDirectory\n"
        "with RunDirectory(sys.argv[1]).lock():\n"
        "    child = os.fork()\n"
        "    if child: print(child, flush=True)\n"
        "    time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(UsageError, match=f"process {holder.pid} on "), RunDirectory(tmp_path).lock():
            pass
        holder.kill()
        holder.wait()
        deadline = time.monotonic() + 60  # the child may not have run yet since it was forked
        while True:
            try:
                with RunDirectory(tmp_path).lock():
                    break
            except UsageError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        os.kill(child, 0)  # it still lives
    finally:
        os.kill(child, signal.SIGKILL)
        holder.kill()
        holder.wait()
        holder.stdout.close()
