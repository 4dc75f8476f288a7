"""Searching for settings: spaces, trials that are runs of their own, and what is left when a process is killed."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest

from acme_ext import builders
from acme_ext.commands import cli
from acme_ext.commands.tuning import results, spaces, study
from acme_ext.commands.tuning.study import State, Study, Tuned
from acme_ext.data.format import FolderWriter
from acme_ext.errors import UsageError
from acme_ext.launch import Experiment
from acme_ext.launch.hosts.interrupt import Interrupt
from acme_ext.launch.hosts.ray import commands

SPACE = {"learning_rate": spaces.parse("log:1e-4:1e-2"), "batch_size": spaces.parse("int:1:100")}

# In place of a run: ten evaluations, of which each is the batch size at the share of the run that has gone by; a
# learning rate above the last tenth of its range fails.
RUN = """
import json, os, pathlib, sys, time
arguments = sys.argv[2:]
value = dict(zip(arguments, arguments[1:]))
chosen = dict(arguments[i + 1].split("=") for i, text in enumerate(arguments) if text == "--set")
run = pathlib.Path(value["--run-dir"])
(run / "logs").mkdir(parents=True, exist_ok=True)
with open(run / "starts", "a") as starts:
    starts.write(value["--seed"] + "\\n")
(run / "config.json").write_text(json.dumps({"agent": "dqn", "environment": "gym:CartPole-v1", "run": {}}))
if float(chosen["learning_rate"]) > 8e-3:
    sys.exit("acme-ext: the loss is not finite")
steps = int(value["--steps"])
rows = [f"{steps * i // 10},{float(chosen['batch_size']) * i / 10}" for i in range(1, 11)]
if run.parent.name == "trials" and pathlib.Path("stopped").exists():
    (run / "logs/evaluator.csv").write_text("\\n".join(["environment_steps,episode_return_mean", *rows[:5], ""]))
    time.sleep(300)
(run / "logs/evaluator.csv").write_text("\\n".join(["environment_steps,episode_return_mean", *rows, ""]))
(run / "evaluation.json").write_text(json.dumps({"episode_return_mean": float(chosen["batch_size"])}))
"""


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "CHILD", RUN)
    monkeypatch.setattr(study, "_POLL_S", 0.02)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tuned(**changes):
    given = {
        "agent": "dqn",
        "environment": "gym:CartPole-v1",
        "steps": 1_000,
        "every": 100,
        "num_envs": 1,
        "eval_episodes": None,
        "settings": {},
        "environment_options": {},
        "space": SPACE,
        "seed": 100,
    }
    return Tuned(**{**given, **changes})


@pytest.mark.parametrize("name", sorted(spaces.AGENTS))
def test_every_agents_space_is_of_fields_that_it_has_and_takes(name):
    builder = builders.make(name)
    assert [*spaces.of_agent(builder, (), {})] == [*spaces.AGENTS[name]]
    spaces.configure_builder(builder, spaces.middle(spaces.of_agent(builder, (), {})))


def test_an_agent_of_ones_own_has_the_space_of_what_it_is_derived_from_or_of_its_fields():
    derived = builders.make("recurrent_dqn:RecurrentDQN")
    assert {"learning_rate", "epsilon_end"} <= set(spaces.of_agent(derived, (), {})) <= set(spaces.AGENTS["dqn"])
    own = spaces.of_agent(builders.make("my_agents:ExpectedSarsa"), (), {"discount": "0.9"})
    assert [*own] == ["learning_rate", "batch_size", "replay.n_step", "replay.samples_per_insert"]
    given = spaces.of_agent(builders.make("my_agents:ExpectedSarsa"), ["epsilon=float:0:0.5", "batch_size=fixed"], {})
    assert given["epsilon"].ends == (0, 0.5)
    assert "batch_size" not in given


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("learning_rate=1e-3", "'1e-3' is not a range: write float:LOW:HIGH"),
        ("learning_rate=log:0:1", "a logarithmic range must begin above 0"),
        ("learning_rate=float:1:0.1", "the lower one first"),
        ("batch_size=int:1.5:8", "its ends must be whole numbers"),
        ("batch_size=log:1:8", "batch_size is '2.828': it must be a whole number"),
        ("batch_size=int:0:8", "batch_size is 0: it must be at least 1"),
        ("dueling=choice:true", "a choice needs at least two different values"),
        ("dueling=choice:true:maybe", "dueling is 'maybe': it must be true or false"),
        ("learning_rat=log:1e-4:1e-3", "did you mean 'learning_rate'"),
        ("double=choice:true:false", "double is given by both --set and --space"),
    ],
)
def test_what_is_no_range_of_a_field_is_refused(text, told):
    with pytest.raises(UsageError, match=f".*{told}"):
        spaces.of_agent(builders.make("dqn"), [text], {"double": "true"})


def test_the_middle_of_a_range_halves_what_is_drawn():
    middles = {
        text: spaces.parse(text).middle for text in ("log:1e-4:1e-2", "float:0:3", "logint:1:100", "choice:a:b:c")
    }
    assert list(middles.values()) == ["0.001", "1.5", "10", "b"]


def test_trials_are_runs_that_are_pruned_and_counted_and_the_best_are_trained_again(runs):
    told = []
    found = Study(runs / "s", tuned(), told.append)
    found.search(12, 2, Interrupt())
    trials = found.trials
    assert [trial.number for trial in trials] == list(range(12))
    assert {trial.state for trial in trials} <= {State.COMPLETE, State.PRUNED}
    sizes = [trial.params["batch_size"] for trial in trials]
    for trial, size in zip(trials, sizes, strict=True):
        assert (runs / f"s/trials/{trial.number:04d}/starts").read_text() == f"{100 + trial.number}\n"
        if trial.params["learning_rate"] > 8e-3:
            assert trial.state == State.PRUNED
            assert trial.user_attrs["reason"] == "the loss is not finite"
        elif trial.state == State.COMPLETE:
            assert trial.value == size
            assert trial.intermediate_values == pytest.approx({i: size * i / 10 for i in range(1, 11)})
    assert [trial.value for trial in found.best] == sorted((t.value for t in found.best), reverse=True)

    again = found.retrain(2, 3, 2, ["middle"], Interrupt())
    assert sorted(each.name for each in again) == sorted([*(f"trial {t.number}" for t in found.best[:2]), "middle"])
    for each in again:
        assert sorted(each.outcomes) == [0, 1, 2]
        assert each.scores.tolist() == [float(each.settings["batch_size"])] * 3
    assert (runs / f"s/retrained/trial-{found.best[0].number}-s2/starts").read_text() == "2\n"

    paths = results.write(found, again)
    assert [path.name for path in paths] == ["results.json", "history.png", "importance.png"]
    written = json.loads(paths[0].read_text())
    assert len(written["trials"]) == 12
    assert written["retrained"][0]["mean"] == again[0].scores.mean()
    assert sum(written["importances"].values()) == pytest.approx(1)
    assert results.table(found, again)[1].split()[:2] == again[0].name.split()
    assert results.counts(found).startswith("12 trials: ")


def test_a_run_that_ends_in_spite_of_being_pruned_keeps_all_its_evaluations(runs, monkeypatch):
    given = tuned(space={**SPACE, "learning_rate": spaces.parse("log:1e-4:1e-3")})
    Study(runs / "s", given).search(5, 2, Interrupt())
    # The worst there is writes half of its evaluations, and the others once it has been told to end.
    worst = RUN.replace("float(chosen['batch_size'])", "-1.0").replace('"stopped"', '"s"')
    worst = worst.replace("time.sleep(300)", "[time.sleep(0.01) for _ in iter(pathlib.Path('told').exists, True)]")
    monkeypatch.setattr(study, "CHILD", "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + worst)

    def told(line):
        if "pruned" in line:
            (runs / "told").touch()

    found = Study(runs / "s", given, told)
    found.search(6, 1, Interrupt())
    assert (runs / "told").is_file()
    assert found.trials[5].state == State.COMPLETE
    assert [*found.trials[5].intermediate_values.values()] == pytest.approx([-i / 10 for i in range(1, 11)])


def test_a_trial_that_does_worse_than_the_median_is_ended(runs):
    found = Study(
        runs / "s", tuned(space={"batch_size": spaces.parse("int:50:100")}, settings={"learning_rate": "1e-3"})
    )
    found.search(5, 1, Interrupt())
    assert [trial.state for trial in found.trials] == [State.COMPLETE] * 5
    (runs / "stopped").touch()  # from now on a run stops in its middle, and would not end by itself
    found.optuna.enqueue_trial({"batch_size": 50})
    least = min(trial.value for trial in found.trials if trial.value is not None)
    found.search(6, 1, Interrupt())
    assert least > 50
    assert found.trials[5].state == State.PRUNED
    assert max(found.trials[5].intermediate_values) == 3  # after a third of the evaluations


def test_a_killed_process_loses_no_trial_and_another_goes_on(runs):
    first = Study(runs / "s", tuned())
    first.search(3, 1, Interrupt())
    before = [(trial.number, trial.state, trial.value) for trial in first.trials]

    class KilledError(Exception):
        pass

    def kill(work):
        raise KilledError

    first._tell = kill  # as if it had been killed when the trial had ended, and nobody had written that down
    with pytest.raises(KilledError):
        first.search(4, 1, Interrupt())
    begun = first.trials[3]
    assert begun.state == State.RUNNING
    lock = lock_of(first, 3)  # before the second opens the same file to see whether it is free

    told = []
    second = Study(runs / "s", tuned(), told.append)
    waiting = threading.Thread(target=second.search, args=(5, 1, interrupted := Interrupt()))
    waiting.start()
    while len(second.trials) < 5 or second.trials[4].state == State.RUNNING:
        pass
    # The first still has the lock of the fourth, and it is not touched.
    assert second.trials[3].state == State.RUNNING
    study.os.close(lock)
    waiting.join()
    assert not interrupted.requested
    assert [(trial.number, trial.state, trial.value) for trial in second.trials[:3]] == before
    assert second.trials[3].params == begun.params
    assert all(trial.state.is_finished() for trial in second.trials)
    assert "trial 3 is resumed" in told
    assert (runs / "s/trials/0003/starts").read_text() == "103\n103\n"


def lock_of(found, number):
    """The descriptor by which this process holds the lock of a trial."""
    path = found.path / f"trials/{number:04}.lock"
    (descriptor,) = (int(n) for n in study.os.listdir("/proc/self/fd") if holds(n, path))
    return descriptor


def holds(number, path):
    try:
        return study.os.readlink(f"/proc/self/fd/{number}") == str(path)
    except OSError:  # the descriptor of the listing itself
        return False


def test_two_processes_on_one_study_share_its_trials(runs):
    both = [Study(runs / "s", tuned()) for _ in range(2)]
    threads = [threading.Thread(target=each.search, args=(8, 1, Interrupt())) for each in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trials = both[0].trials
    assert len(trials) == 8
    assert all(trial.state.is_finished() for trial in trials)
    assert len({trial.params["learning_rate"] for trial in trials}) == 8
    for trial in trials:
        assert (runs / f"s/trials/{trial.number:04d}/starts").read_text() == f"{100 + trial.number}\n"


def test_a_study_that_another_process_has_begun_is_no_stranger(runs, monkeypatch):
    (runs / "s").mkdir()
    for name in ("lock", ".study.json.12.tmp", ".probe.12"):  # it was killed
        (runs / "s" / name).touch()
    Study(runs / "s", tuned())
    entries, begun = study.files.entries, []

    def begin_first(folder):
        if not begun:
            begun.append(True)
            Study(runs / "t", tuned())
        return entries(folder)

    (runs / "t").mkdir()
    monkeypatch.setattr(study.files, "entries", begin_first)
    Study(runs / "t", tuned())


def test_what_a_killed_process_leaves_of_the_journal_is_mended(runs):
    before = Study("s", tuned())
    before.optuna.ask()
    journal = runs / "s/journal.log"
    # It was killed while it wrote, and had the lock of an earlier version.
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"op_code":4,"wor')
    (runs / "s/journal.log.lock").symlink_to("s/journal.log")
    again = Study("s", tuned())
    again.optuna.ask()
    assert len(again.trials) == 2
    assert journal.read_bytes().startswith(whole)
    assert all(json.loads(line) for line in journal.read_text().splitlines())
    before.optuna.ask()  # one that goes on beside it
    assert len(Study("s", tuned()).trials) == 3


def test_a_request_to_stop_ends_the_runs_and_the_trial_goes_on_later(runs):
    (runs / "stopped").touch()
    found, asked = Study(runs / "s", tuned(every=0)), Interrupt()
    searching = threading.Thread(target=found.search, args=(1, 1, asked))
    searching.start()
    while not (runs / "s/trials/0000/logs/evaluator.csv").exists():
        pass
    asked.signal = 15
    searching.join()
    assert found.trials[0].state == State.RUNNING
    (runs / "stopped").unlink()
    found.search(1, 1, Interrupt())
    assert found.trials[0].state == State.COMPLETE
    assert found.trials[0].value == found.trials[0].params["batch_size"]


def test_a_run_whose_host_is_lost_goes_on_on_another_and_fails_in_the_end(runs, monkeypatch):
    monkeypatch.setattr(study, "_PAUSE_S", 0.01)

    class Host(commands.OnHost):
        def __init__(self, lost):
            self.returncode, self.lost = (-9, True) if lost else (0, False)

    class Cluster(commands.Cluster):
        def __init__(self, losses):
            self.losses = losses

        def start(self, child, command, run_dir):
            lost, self.losses = self.losses > 0, self.losses - 1
            if not lost:
                done = subprocess.run([sys.executable, "-c", child, "0", *command], check=False)
                assert done.returncode == 0
            return Host(lost)

    told = []
    found = Study(
        runs / "s", tuned(space={"batch_size": SPACE["batch_size"]}, settings={"learning_rate": "1e-3"}), told.append
    )
    found._cluster = Cluster(2)
    found.search(1, 1, Interrupt())
    assert found.trials[0].state == State.COMPLETE
    assert told.count("0000: its host was lost; it is resumed on another") == 2
    assert told.count("trial 0 is resumed") == 2
    found._cluster = Cluster(5)
    found.search(2, 1, Interrupt())
    assert found.trials[1].state == State.FAIL
    assert found.trials[1].user_attrs["reason"] == "signal 9 ended it"


def test_settings_of_which_no_seed_has_ended_well_have_no_score():
    for outcomes in ({}, {0: study.Outcome(None, "diverged")}):
        row = results._retrained(study.Retrained("defaults", {}, outcomes))
        assert [row[name] for name in ("mean", "std", "least", "greatest")] == [None] * 4


def test_settings_of_which_a_seed_failed_come_last():
    def retrained(name, *scores):
        outcomes = {seed: study.Outcome(score, None if score else "diverged") for seed, score in enumerate(scores)}
        return study.Retrained(name, {}, outcomes)

    lucky, steady = retrained("lucky", 100.0, None, None), retrained("steady", 90.0, 80.0, 85.0)
    worse, stopped, none = retrained("worse", 10.0, 10.0, 10.0), retrained("stopped", 95.0), retrained("none", None)
    again = study.ranked([lucky, none, worse, steady, stopped])
    assert [each.name for each in again] == ["stopped", "steady", "worse", "none", "lucky"]
    assert (lucky.failed, steady.failed) == (2, 0)


def test_a_study_with_another_space_is_refused(runs):
    Study(runs / "s", tuned())
    other = tuned(space={**SPACE, "batch_size": spaces.parse("int:1:200")}, settings={"dueling": "true"})
    with pytest.raises(UsageError) as error:
        Study(runs / "s", other)
    assert "space.batch_size is 'int:1:100' there and 'int:1:200' here" in str(error.value)
    assert "settings.dueling is (absent) there and 'true' here; choose another directory" in str(error.value)
    (runs / "x").mkdir()
    (runs / "x/mine").touch()
    with pytest.raises(UsageError, match="x is neither empty nor a study"):
        Study(runs / "x", tuned())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["muzeru", "gym:CartPole-v1"], "there is no agent 'muzeru'"),
        (["dqn", "gym:CartPole-v1", "--seed", "3"], "trials must not have the seeds 0 to 4 of --seeds"),
        (["dqn", "gym:CartPole-v1", "--space", "replay.max_size=int:2:8"], "give min_size <= 5"),
        (["sac", "gym:CartPole-v1"], "SAC needs"),
        (["bc", "data:x", "--num-envs", "2"], "--num-envs can't be used with data:FOLDER"),
        (["dqn", "gym:CartPole-v1", "--resources", "CPU:2"], "add --on ray"),
        (["dqn", "gym:CartPole-v1", "--on", "ray", "--resources", "CPU:1.5"], "--resources is 'CPU:1.5': write CPU:1"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(tmp_path, monkeypatch, capsys, arguments, told):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["tune", *arguments]) == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_agent_that_can_not_learn_from_the_data_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    spec = Experiment(builders.DQN(), "gym:CartPole-v1").make_spec()
    about = {"environment": "gym:CartPole-v1", "environment_options": {}, "agent": "dqn", "config": {}, "seed": 0}
    FolderWriter(tmp_path / "data", spec, about).begin()
    assert cli.main(["tune", "ppo", "data:data"]) == 2
    assert "learns from its own newest data: it can't learn from fixed data" in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


def test_trials_find_data_of_a_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    command = tuned(agent="bc", environment="data:~/rec?best=0.5").command(tmp_path / "run", 100, {})
    assert command[:3] == ["train", "bc", f"data:{tmp_path}/rec?best=0.5"]


@pytest.mark.release
def test_a_search_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["tune", "dqn", "bsuite:catch/0", "--steps", "600", "--trials", "2", "--num-envs", "4", "--jobs", "2"]
    command += [
        "--space",
        "learning_rate=log:1e-4:1e-2",
        "--set",
        "replay.min_size=100",
        "--study",
        "s",
        "--seeds",
        "1",
    ]
    assert cli.main([*command, "--best", "1", "--beside", "middle", "--quiet"]) == 0
    told = capsys.readouterr().out
    assert "2 trials: 2 went to their end" in told
    written = json.loads((tmp_path / "s/results.json").read_text())
    assert [trial["state"] for trial in written["trials"]] == ["COMPLETE"] * 2
    assert {each["name"] for each in written["retrained"]} >= {"middle"}
    assert np.isfinite([each["mean"] for each in written["retrained"]]).all()
    config = json.loads((tmp_path / "s/trials/0001/config.json").read_text())
    assert config["seed"] == 101
    assert config["config"]["learning_rate"] == float(written["trials"][1]["settings"]["learning_rate"])
