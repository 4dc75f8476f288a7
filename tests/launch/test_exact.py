"""Runs with the embedded table repeat exactly, and resume exactly from the checkpoints that are scheduled by steps."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from toys import make_walk, toy

from acme_ext import launch
from acme_ext.errors import UsageError
from acme_ext.launch import Checkpoints, Evaluation, Experiment
from benchmarks.shared.same_runs import differences

pytestmark = pytest.mark.usefixtures("no_figures")

AGENTS = {
    "dqn": ("gym:CartPole-v1", {}),
    "rainbow": ("gym:CartPole-v1", {}),
    "ppo": ("gym:CartPole-v1", {}),
    "impala": ("gym:CartPole-v1", {}),
    "r2d2": ("gym:CartPole-v1", {"replay.min_size": "20"}),
    "ngu": ("gym:CartPole-v1", {"replay.min_size": "20"}),
    "sac": ("gym:Pendulum-v1", {"replay.min_size": "200"}),
}
MARKS = {"dqn": (), "ppo": pytest.mark.slow, "r2d2": pytest.mark.slow}  # the others before a release


def script(agent: str, environment: str, fields: dict[str, str], folder: Path, steps: int, every: int) -> list[str]:
    given = [x for name, value in fields.items() for x in ("--set", f"{name}={value}")]
    return [
        *(sys.executable, "-m", "acme_ext", "train", agent, environment, "--steps", str(steps), "--num-envs", "3"),
        *("--table", "embedded", "--checkpoint-steps", str(every), "--checkpoint-every", "0.5", "--eval-every", "500"),
        *("--eval-episodes", "2", "--run-dir", str(folder), "--quiet", *given),
    ]


@pytest.mark.parametrize("agent", [pytest.param(name, marks=MARKS.get(name, pytest.mark.release)) for name in AGENTS])
def test_a_killed_run_goes_on_exactly(tmp_path, agent):
    environment, fields = AGENTS[agent]
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    options = {"check": True, "capture_output": True, "text": True, "env": {**os.environ, "JAX_PLATFORMS": "cpu"}}
    subprocess.run(script(agent, environment, fields, straight, 1500, 600), **options)
    process = subprocess.Popen(script(agent, environment, fields, killed, 1500, 600), env=options["env"])
    try:
        while not list(killed.glob("checkpoints/0000000006*/manifest.json")) and process.poll() is None:
            pass
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*script(agent, environment, fields, killed, 1500, 600), "--exact"], **options)
    assert differences(straight, killed) == []


def experiment(folder: Path, **fields: Any) -> Experiment:
    given = {"steps": 100, "evaluation": Evaluation(every=0, final_episodes=1), "table": "embedded", **fields}
    return Experiment(toy(samples_per_insert=1.0), make_walk, run_dir=str(folder), **given)


def test_a_stop_elsewhere_is_told_and_can_be_undone(tmp_path, capfd):
    steps = Checkpoints(steps=40)
    launch.run(experiment(tmp_path / "a", steps=100, checkpoints=steps), quiet=True)
    launch.run(experiment(tmp_path / "a", steps=200, checkpoints=steps), quiet=True)
    assert "not exactly as if it had not been stopped" in capfd.readouterr().out
    launch.run(experiment(tmp_path / "b", steps=100, checkpoints=steps), quiet=True)
    launch.run(experiment(tmp_path / "b", steps=200, checkpoints=steps), quiet=True, exact=True)
    assert "at step 80" in capfd.readouterr().out
    launch.run(experiment(tmp_path / "c", steps=200, checkpoints=steps), quiet=True)
    assert differences(tmp_path / "b", tmp_path / "c") == []


def test_a_run_without_an_exact_checkpoint_begins_anew(tmp_path, capfd):
    steps = Checkpoints(steps=40)
    launch.run(experiment(tmp_path / "a", steps=30, checkpoints=steps), quiet=True)
    launch.run(experiment(tmp_path / "a", checkpoints=steps), quiet=True, exact=True)
    assert "begins anew" in capfd.readouterr().out
    launch.run(experiment(tmp_path / "b", checkpoints=steps), quiet=True)
    assert differences(tmp_path / "a", tmp_path / "b") == []


def test_a_run_that_was_begun_without_exact_checkpoints_is_not_thrown_away(tmp_path):
    launch.run(experiment(tmp_path / "run", steps=60), quiet=True)
    with pytest.raises(UsageError, match="Leave out exact"):
        launch.run(experiment(tmp_path / "run", checkpoints=Checkpoints(steps=40)), quiet=True, exact=True)
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["000000000060"]


def test_two_runs_of_a_seed_are_equal_and_another_seed_differs(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        launch.run(experiment(tmp_path / name, seed=seed, num_envs=3), quiet=True)
    assert differences(tmp_path / "a", tmp_path / "b") == []
    assert differences(tmp_path / "a", tmp_path / "c")


def test_what_exact_checkpoints_need(tmp_path):
    with pytest.raises(UsageError, match="--table embedded"):
        launch.run(experiment(tmp_path, table="reverb", checkpoints=Checkpoints(steps=10)), quiet=True)
    with pytest.raises(UsageError, match="replay_every_s"):
        launch.run(experiment(tmp_path, checkpoints=Checkpoints(steps=10, replay=False)), quiet=True)
    with pytest.raises(UsageError, match="--checkpoint-steps"):
        launch.run(experiment(tmp_path), quiet=True, exact=True)
    with pytest.raises(UsageError, match="not determined"):
        launch.run(experiment(tmp_path, checkpoints=Checkpoints(steps=10)), launch.Threads(1), quiet=True)


def test_a_run_is_resumed_in_its_own_table(tmp_path):
    launch.run(experiment(tmp_path / "run", steps=20), quiet=True)
    with pytest.raises(UsageError, match="--table embedded"):
        launch.run(experiment(tmp_path / "run", steps=40, table="reverb"), quiet=True)


def test_the_same_run_on_policy_through_either_table(tmp_path):
    pytest.importorskip("reverb")
    folders = []
    for table in ("embedded", "reverb"):
        given = Experiment(
            toy(order="queue", max_size=16, batch_size=8),
            make_walk,
            steps=200,
            num_envs=4,
            evaluation=Evaluation(every=0, final_episodes=1),
            table=table,
            run_dir=str(tmp_path / table),
        )
        launch.run(given, quiet=True)
        folders.append(contents_of_learner(tmp_path / table))
    jax.tree.map(np.testing.assert_array_equal, *folders)


def contents_of_learner(folder: Path) -> dict[str, np.ndarray]:
    last = max(path for path in (folder / "checkpoints").iterdir() if path.name.isdigit())
    return dict(np.load(last / "learner.npz"))
