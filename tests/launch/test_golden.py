"""Runs that earlier versions have left in `tests/golden`, by the `command` in each, with a budget of 60 steps.

Each goes on, or is refused in a sentence that says why. A change after which a run can't go on adds the message to
`REFUSED`, and a run of the new version to `tests/golden`.
"""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from acme_ext import __version__
from acme_ext.commands import cli
from acme_ext.learning import checkpoints

pytestmark = pytest.mark.usefixtures("no_figures")

GOLDEN = Path(__file__).parents[1] / "golden"
REFUSED = {  # by folder, a pattern
    "dqn-0.1.0": "DQN has no setting 'min_replay_size': did you mean 'replay.min_size'",
    "dqn-0.2.0": r"holds another run, made by version 0\.2\.0 .*config\.huber_delta is 1\.0 there and None here",
}


@pytest.fixture
def go_on(tmp_path, capfd):
    """Gives a golden run's command for more steps, on a copy; returns the exit code and what was printed."""

    def go_on(folder, *options, change=lambda run: None):
        run = tmp_path / "run"
        shutil.copytree(folder, run)
        change(run)
        command = shlex.split((folder / "command").read_text())
        code = cli.main([*command, "--steps", "120", "--run-dir", str(run), *options])
        return code, *capfd.readouterr()

    return go_on


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(folder, marks=pytest.mark.release if folder.name == "dqn-0.1.0" else ())
        for folder in sorted(GOLDEN.iterdir())
    ],
    ids=lambda folder: folder.name,
)
def test_a_run_of_an_earlier_version_goes_on_or_is_refused(folder, go_on, tmp_path, capfd):
    code, out, err = go_on(folder)
    if folder.name in REFUSED:
        assert code == 2
        assert re.search(REFUSED[folder.name], err)
        return
    assert (code, err) == (0, "")
    assert "resuming " in out
    assert " at step 60." in out
    steps, learned = re.search(r"^steps +(\d+) of the environment, (\d+) of the learner$", out, re.MULTILINE).groups()
    # A sample for every fourth of an insert from 20 inserts on: what was saved of the replay counts.
    assert int(steps) == 120
    assert 120 - 20 - 4 <= int(learned) <= 120 + 40
    assert cli.main(["evaluate", str(tmp_path / "run")]) == 0
    assert "over 2 episodes" in capfd.readouterr().out


def test_a_run_of_an_earlier_version_is_told_from_other_folders(tmp_path, capfd):
    run = tmp_path / "run"
    shutil.copytree(GOLDEN / "dqn-0.1.0", run)
    command = ["train", "dqn", "gym:CartPole-v1", "--steps", "20", "--run-dir", str(run), "--quiet"]
    assert cli.main(command) == 2
    assert f"{run} holds another run, made by version 0.1.0" in capfd.readouterr().err
    assert cli.main(["evaluate", str(run)]) == 2
    assert f"of {run}, made by version 0.1.0" in capfd.readouterr().err
    assert cli.main([*command, "--fresh"]) == 0


NEWEST = GOLDEN / "dqn-0.3.0"


def _with_format(run):
    for path in run.glob("checkpoints/*/manifest.json"):
        manifest = {**json.loads(path.read_text())["manifest"], "format": 7}
        path.write_text(json.dumps({"sha256": checkpoints._digest(manifest), "manifest": manifest}))


def _with_field(run):
    config = json.loads((run / "config.json").read_text())
    config["config"]["temperature"] = config["config"].pop("learning_rate")
    config["run"]["version"] = "0.0.9"
    (run / "config.json").write_text(json.dumps(config))


def _with_leaf(run):
    for path in run.glob("checkpoints/*/manifest.json"):
        manifest = json.loads(path.read_text())["manifest"]
        manifest["leaves"]["learner"][".second_target"] = "float32"
        path.write_text(json.dumps({"sha256": checkpoints._digest(manifest), "manifest": manifest}))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_with_format, "has format 7, and this version reads format 1; another agent or another version saved it"),
        (
            _with_field,
            rf"holds another run, made by version 0\.0\.9 \(this is {__version__}\): .*config.learning_rate is",
        ),
        (_with_leaf, r"has a leaf learner\.second_target, which the run hasn't; another agent or another version"),
    ],
)
def test_what_another_version_has_made_is_refused_in_a_sentence(change, says, go_on):
    code, _, err = go_on(NEWEST, change=change)
    assert code == 2
    assert re.fullmatch(rf"acme-ext: .*{says}.* start anew \(--fresh\)\.\n", err)


def test_a_refused_run_can_be_started_anew(go_on):
    code, out, _ = go_on(NEWEST, "--fresh", change=_with_format)
    assert code == 0
    assert "resuming" not in out
