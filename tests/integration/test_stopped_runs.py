"""Runs of the command line that are killed, interrupted, or end in somebody's error, and then go on."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import slow_walk

from acme_ext import builders, envs
from acme_ext.acting import memories
from acme_ext.builders import DQN
from acme_ext.commands import cli
from acme_ext.config.assignments import configure_builder, replace_fields
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.replay.reverb.store import ReverbStore
from acme_ext.utils import loggers

_PATIENCE_S = 90
_FIELDS = {
    "hidden_sizes": "8",
    "batch_size": "16",
    "sgd_steps_per_call": "2",
    "replay.samples_per_insert": "4",
    "replay.min_size": "50",
    "replay.n_step": "2",
    "replay.write_burst": "16",
    "replay.prioritized": "true",
}
_STEPS = 1_500


def command(run: Path, *, checkpoint_every: float = 0.2) -> list[str]:
    options = {"--steps": _STEPS, "--run-dir": run, "--eval-every": 250, "--checkpoint-every": checkpoint_every}
    fields = [text for name, value in _FIELDS.items() for text in ("--set", f"{name}={value}")]
    words = [str(word) for pair in options.items() for word in pair]
    return ["train", "dqn", "gym:slow_walk:SlowWalk-v0", "--quiet", *words, *fields]


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command in a process of its own, which the test's end outlives by nothing."""
    started = []

    def begin(arguments: list[str], **variables: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
        line = [sys.executable, "-m", "acme_ext", *arguments]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(line, env=environment, text=True, **streams))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def wait_for(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert process.poll() is None, f"it ended too soon: {process.communicate()}"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def rows(run: Path, label: str, name: str = "environment_steps") -> list[float]:
    path = run / f"logs/{label}.csv"
    columns = loggers.read_csv(path) if path.is_file() else {}
    return columns[name].tolist() if columns else []


def saved(run: Path) -> list[int]:
    """Returns the steps of a run's checkpoints."""
    folder = run / "checkpoints"
    return sorted(int(path.name) for path in folder.glob("[0-9]" * 12)) if folder.is_dir() else []


def inserted_and_sampled(run: Path) -> tuple[int, int]:
    """Returns what the replay in a run's last checkpoint has counted."""
    with envs.make("gym:slow_walk:SlowWalk-v0") as environment:
        replay = DQN(replace_fields(DQN().config, _FIELDS)).make_agent(envs.make_spec(environment)).replay
    server = ReverbStore(replay, restore=run / f"checkpoints/{saved(run)[-1]:012d}/replay")
    try:
        return server.table.counts()[:2]
    finally:
        server.close()


def learner_steps(inserted: int) -> int:
    # 4 samples an insert from 50 inserts on, and 32 * 4 ahead; calls of 2 batches of 16.
    return ((inserted - 50) * 4 + 128) // 32 * 2


def finish(run: Path, stopped_at: int, capfd: pytest.CaptureFixture[str], *, lost: int) -> None:
    """Gives the same command again, and checks that the run ends as if it hadn't been stopped at a step."""
    before = CheckpointStore(run / "checkpoints").restore({})
    assert before is not None
    assert before.steps == stopped_at
    state = before.info["state"]
    assert state["counts"]["environment_steps"] == state["actor"]["steps"] == stopped_at
    rows_before = {label: [n for n in rows(run, label) if n <= stopped_at] for label in ("actor", "learner")}

    capfd.readouterr()
    assert cli.main(command(run)) == 0
    told = capfd.readouterr()
    assert f"resuming {run} at step {stopped_at:,}." in told.out
    (line,) = re.findall(r"^steps +([\d,]+) of the environment, ([\d,]+) of the learner$", told.out, re.MULTILINE)
    steps, learned = (int(number.replace(",", "")) for number in line)
    assert steps == _STEPS
    assert saved(run)[-1] == _STEPS
    after = CheckpointStore(run / "checkpoints").restore({})
    assert after is not None
    # Exploration goes by the whole run's steps, and a random key is never used twice.
    assert after.info["state"]["actor"]["steps"] == _STEPS
    assert after.info["state"]["actor"]["ticks"] > state["actor"]["ticks"] + _STEPS - stopped_at

    # All but what was on its way to the table, and the batch or two that had been fetched.
    inserted, sampled = inserted_and_sampled(run)
    assert _STEPS - lost <= inserted <= _STEPS
    assert learner_steps(inserted) - 4 <= learned <= learner_steps(inserted)
    assert learned * 16 <= sampled

    assert rows(run, "evaluator") == list(range(250, _STEPS + 1, 250))
    # Episodes of 10 steps: those before, and those that began anew.
    assert rows(run, "actor") == [*rows_before["actor"], *range(stopped_at + 10, _STEPS + 1, 10)]
    assert rows_before["actor"] == list(range(10, stopped_at + 1, 10))
    learner = rows(run, "learner")
    assert learner[: len(rows_before["learner"])] == rows_before["learner"]
    assert learner == sorted(set(learner))
    assert rows(run, "learner", "learner_steps")[-1] == learned
    times = rows(run, "actor", "wall_time_s")
    assert times == sorted(times)
    assert times[len(rows_before["actor"])] > state["wall_time_s"] - 0.001


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path, start, capfd):
    run = tmp_path / "run"
    process = start(command(run))
    # Far enough past a checkpoint that there are rows to be forgotten, unless it saves itself in this very moment.
    wait_for(process, lambda: len(saved(run)) > 1 and (rows(run, "actor") or [0])[-1] > saved(run)[-1] + 10)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stopped_at = saved(run)[-1]
    assert stopped_at < _STEPS
    # A burst and the steps that a transition spans weren't written yet.
    finish(run, stopped_at, capfd, lost=16 + 2)


_EXPLORING = {
    "hidden_sizes": "8",
    "core_size": "8",
    "batch_size": "4",
    "num_arms": "3",
    "memory_rows": "16",
    "neighbours": "3",
    "embedding_size": "4",
    "bandit_window": "5000",
    "replay.length": "6",
    "replay.burn_in": "2",
    "replay.period": "3",
    "replay.min_size": "8",
    "replay.samples_per_insert": "1",
}


@pytest.mark.release
def test_a_killed_run_keeps_its_bandit_its_averages_and_its_normalisers(tmp_path, start):
    run, fields = tmp_path / "run", _EXPLORING  # NGU's parts, and a bandit
    options = ["--num-envs", "2", "--run-dir", str(run), "--eval-every", "0", "--eval-episodes", "2", "--quiet"]
    options += [text for name, value in fields.items() for text in ("--set", f"{name}={value}")]
    line = ["train", "agent57", "bsuite:catch/0", "--checkpoint-every", "0.5", *options]
    process = start([*line, "--steps", "1000000"])
    wait_for(process, lambda: bool(saved(run)) and saved(run)[-1] > 1_500)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stopped_at = saved(run)[-1]

    with contextlib.closing(envs.make("bsuite:catch/0")) as environment:
        made = configure_builder(builders.make("agent57"), fields).make_agent(envs.make_spec(environment))

    def stands() -> tuple[Any, Any]:
        """What the policy keeps of each environment, and the learner's state, in the last checkpoint."""
        restored = CheckpointStore(run / "checkpoints").restore({"learner": made.core.abstract_state()})
        assert restored is not None
        text = restored.info["state"]["actor"]["carry"]
        return memories.unpack(text, made.policy.init_policy_memory(2).run), restored.trees["learner"]

    policy, learner = stands()
    assert (np.asarray(policy.distances.seen) > 500).all()
    assert learner.errors.count > 100

    assert cli.main([*line, "--steps", str(stopped_at + 300)]) == 0
    policy_then, learner_then = stands()
    taken = np.asarray(policy_then.distances.seen - policy.distances.seen)
    assert ((taken > 50) & (taken <= 150)).all()
    jax.tree.map(np.testing.assert_array_equal, learner_then.distillation.target, learner.distillation.target)
    # Too few steps to have seen so many again.
    assert learner.errors.count < learner_then.errors.count < learner.errors.count + 1_000
    count, count_then = (each.distillation.observations.count for each in (learner, learner_then))
    assert count < count_then < count + 1_000
    bandit, bandit_then = policy.choice, policy_then.choice
    played = np.asarray(bandit_then.plays - bandit.plays)
    assert (np.asarray(bandit.plays) > 50).all()
    assert ((played > 5) & (played < 20)).all()  # episodes of 9 steps
    for old, new in ((bandit.arm, bandit_then.arm), (bandit.reward, bandit_then.reward)):
        for env, plays in enumerate(np.asarray(bandit.plays)):
            np.testing.assert_array_equal(new[env, :plays], old[env, :plays])


@pytest.mark.slow
def test_an_interrupted_run_ends_in_seconds_and_goes_on_exactly(tmp_path, start, capfd):
    run = tmp_path / "run"
    process = start(command(run, checkpoint_every=0))
    wait_for(process, lambda: len(rows(run, "actor")) > 40)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == ""
    (stopped_at,) = saved(run)
    assert 400 < stopped_at < _STEPS
    assert out.splitlines() == [
        "stopping after a last save; Ctrl-C again stops at once.",
        f"stopped at step {stopped_at:,}; the same command resumes it. {run}",
    ]
    finish(run, stopped_at, capfd, lost=0)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_run_that_is_interrupted_while_it_is_set_up_stops_and_can_go_on(tmp_path, start, number):
    run = tmp_path / "run"
    process = start(command(run, checkpoint_every=1e9))
    wait_for(process, (run / "config.json").is_file)
    process.send_signal(number)
    out, err = process.communicate(timeout=_PATIENCE_S)
    assert (process.returncode, err) == (128 + number, "")
    first, last = out.splitlines()
    assert first == "stopping after a last save; Ctrl-C again stops at once."
    assert re.fullmatch(rf"stopped at step \d+; the same command resumes it\. {re.escape(str(run))}", last)
    assert len(saved(run)) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_interrupted_before_its_run_ends_at_once(tmp_path, start, number):
    process = start(command(tmp_path / "run"))
    maps = Path(f"/proc/{process.pid}/maps")
    wait_for(process, lambda: "numpy" in maps.read_text())
    process.send_signal(number)
    out, err = process.communicate(timeout=_PATIENCE_S)
    assert (process.returncode, out) == (128 + number, "")
    assert err == "acme-ext: stopped; nothing is lost, and the same command starts again.\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_environment_that_raises_is_shown_after_a_last_save(tmp_path, start, capfd):
    run = tmp_path / "run"
    process = start(command(run, checkpoint_every=0), SLOW_WALK_RAISES_AT="437")
    out, err = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 1
    assert err.startswith("Traceback (most recent call last):")
    assert f'File "{slow_walk.__file__}"' in err
    assert err.endswith("ArithmeticError: the arm fell off\n")
    assert out == ""
    assert saved(run) == [436]
    finish(run, 436, capfd, lost=100)  # what was on its way to the table isn't waited for


_FULL = """
mount -t tmpfs -o size={size}k tmpfs "$0" || exit 99
"$@"
code=$?
ls "$0/run/checkpoints" >&2
exit $code
"""


@pytest.mark.slow
def test_a_disk_that_fills_up_is_one_sentence_and_keeps_the_last_checkpoint(tmp_path):
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    line = [sys.executable, "-m", "acme_ext", *command(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    shell = ["unshare", "-rm", "sh", "-c", _FULL.format(size=400), str(tmp_path), *line]
    done = subprocess.run(shell, env=environment, text=True, capture_output=True, timeout=_PATIENCE_S)
    sentence, *checkpoints = done.stderr.splitlines()
    assert done.returncode == 1
    assert re.fullmatch(
        rf"acme-ext: the disk that holds {re.escape(str(tmp_path))}/\S+ is full: "
        r"free some space, then give the same command again\.",
        sentence,
    )
    assert len(checkpoints) >= 1
    assert all(re.fullmatch(r"\d{12}", name) for name in checkpoints)
