"""A run's screen, and the page about runs: both from the files of run directories alone."""

import html.parser
import json
import re
import time

import numpy as np
import pytest
from toys import make_walk, toy

from acme_ext import launch
from acme_ext.commands import cli, report, watch
from acme_ext.launch import Experiment, runner, session
from acme_ext.utils import charts, plots
from acme_ext.utils.rundir import RunDirectory


def make(path, seed=0, steps=1_000, rate=1e-3, returns=(1.0, 2.0), ended=True):
    """A run directory with the logs of a run that has taken all its steps."""
    rundir = RunDirectory(path)
    config = {"agent": "dqn", "environment": "gym:CartPole-v1", "environment_options": {}, "seed": seed}
    rundir.write_config({**config, "config": {"learning_rate": rate}, "run": {"version": "0.3.0", "steps": steps}})
    rows = [f"{steps * i // 10},{i * 10.0},{100 * i},{i * 1.5}" for i in range(1, 11)]
    header = "environment_steps,episode_return_mean,learner_steps,wall_time_s"
    (rundir.logs / "evaluator.csv").write_text("\n".join([header, *rows, ""]))
    (rundir.logs / "learner.csv").write_text("\n".join([header.replace("episode_return_mean", "loss"), *rows, ""]))
    (rundir.logs / "actor.csv").write_text(
        "\n".join(
            [
                "environment_steps,episode_return,wall_time_s",
                *(f"{i // 9},{i % 7},{i / 100}" for i in range(1, 9_000)),
                "",
            ]
        )
    )
    if ended:
        rundir.write_evaluation({"returns": list(returns), "episode_return_mean": float(np.mean(returns))})
    return rundir


def test_the_screen_of_a_finished_run(tmp_path, capsys):
    make(tmp_path / "x", seed=3)
    assert cli.main(["watch", str(tmp_path / "x")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{tmp_path / 'x'}: dqn on gym:CartPole-v1, seed 3"
    assert lines[1] == "finished"
    assert "steps       1,000 of 1,000 (100%)" in lines
    assert "learner     1,000 steps, loss 100" in lines
    assert (
        f"training    return {np.mean([i % 7 for i in range(8_980, 9_000)]):.4g}, the mean of the last 20 episodes"
        in lines
    )
    assert "evaluation  return 100 at step 1,000; the best 100 at 1,000" in lines
    assert "return in evaluation, by environment steps" in lines
    assert cli.main(["watch", str(tmp_path / "nowhere")]) == 2


def test_a_metric_that_the_last_row_lacks_has_its_last_value(tmp_path):
    rundir = make(tmp_path / "x")
    (rundir.logs / "learner.csv").write_text(
        "learner_steps,wall_time_s,environment_steps,rare,never\n1,1,10,nan,nan\n2,2,20,5.5,nan\n3,3,30,nan,nan\n"
    )
    assert "learner     3 steps, rare 5.5" in watch.screen(rundir)


def test_a_row_of_several_episodes_counts_as_many(tmp_path, capsys):
    rundir = make(tmp_path / "x")
    rows = ["environment_steps,episode_return,episodes,wall_time_s", "100,5,40,1", "200,1,16,2", "300,3,8,3", ""]
    (rundir.logs / "actor.csv").write_text("\n".join(rows))
    assert cli.main(["watch", str(tmp_path / "x")]) == 0
    assert f"training    return {(16 + 24) / 24:.4g}, the mean of the last 24 episodes" in capsys.readouterr().out


def test_the_screen_of_a_run_that_goes_on(tmp_path):
    rundir = make(tmp_path / "x", steps=2_000, ended=False)
    (rundir.logs / "learner.csv").write_text(
        "environment_steps,learner_steps,loss,wall_time_s\n200,0,1.0,4.0\n300,40,1.0,8.0\n400,100,0.5,12.0\n12"
    )
    (rundir.logs / "evaluator.csv").unlink()
    with rundir.lock():
        rundir.write_status({"time": time.time(), "nodes": {"actor 0": "waiting for rows"}, "replay": "holds 5, of 9"})
        lines = watch.screen(rundir)
        assert watch.is_live(rundir)
    assert lines[1].startswith("running, by process ")
    assert "learner     100 steps, 12/s, loss 0.5" in lines
    assert "replay      holds 5, of 9" in lines
    assert "actor 0     waiting for rows" in lines
    assert any(line.startswith("return in training") for line in lines)
    waits = "waiting for the replay to take its rows, of which it holds 9 and may hold 9"
    with rundir.lock():
        rundir.write_status({"time": time.time(), "nodes": {"actor 0": waits}, "replay": ""})
        narrow = watch.screen(rundir, 40)
    said = narrow[(first := narrow.index("actor 0     waiting for the replay to")) : narrow.index("", first)]
    assert max(map(len, said)) < 40
    assert " ".join(line[12:] for line in said) == waits

    rundir.write_status({"time": time.time() - 5, "nodes": {}, "replay": ""})
    heard = re.match(r"running, last report (\d+) s ago", watch.screen(rundir)[1])  # it may be on another host
    assert heard
    assert int(heard[1]) >= 5
    rundir.write_status({"time": time.time() - 500, "nodes": {"actor 0": "acting"}, "replay": ""})
    gone = watch.screen(rundir)
    assert gone[1] == "killed: it can be resumed"
    assert not any("acting" in line for line in gone)
    rundir.status.unlink()
    assert watch.screen(rundir)[1] == "stopped: it can be resumed"


def test_a_run_says_what_it_is_doing_until_it_ends(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(session, "_TELL_EVERY_S", 0.0)
    monkeypatch.setattr(RunDirectory, "write_status", lambda self, status: told.append(status))
    experiment = Experiment(toy(), make_walk, steps=200, run_dir=tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(runner, "_TICK_S", 0.0)
        launch.run(experiment, quiet=True)
    assert {"the run": "acting and learning in turn"} in [status["nodes"] for status in told]
    assert told[-1]["nodes"] == {"the run": "evaluating"}
    assert "holds 200 of" in told[-1]["replay"]
    assert told[-1]["time"] <= time.time()


def test_a_curve_as_text_has_its_ends_and_its_shape():
    lines = charts.curve(np.array([0.0, 1_000.0]), np.array([0.0, 8.0]), 30, 4, braille=False)
    assert lines[0].startswith("8 |")
    assert lines[3].startswith("0 |*")
    assert lines[0].endswith("*")
    assert lines[4].split() == ["0", "1,000"]
    assert max(map(len, lines)) <= 30
    columns = [[line.ljust(30)[3 + i] for line in lines[:4]].count("*") for i in range(27)]
    assert min(columns) == 1
    flat = charts.curve(np.array([0.0, 9.0]), np.array([3.0, 3.0]), 30, 3)
    assert [len(line) > 3 for line in flat[:3]] == [False, True, False]


class _Read(html.parser.HTMLParser):
    """Every tag is closed; keeps what refers to anything, and the text."""

    def __init__(self):
        super().__init__()
        self.open, self.refers, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.refers += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.refers += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_holds_all_of_it_and_refers_to_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        make(tmp_path / f"runs/a{seed}", seed=seed, returns=(1.0, 3.0 + seed))
        make(tmp_path / f"runs/b{seed}", seed=seed, rate=5e-4, returns=(10.0, 10.0), ended=seed == 0)
    (tmp_path / "runs/a0/film.gif").write_bytes(b"GIF89a")
    assert cli.main(["report", "runs", "-o", "out/page.html"]) == 0
    assert capsys.readouterr().out.strip() == "out/page.html"
    read = _Read()
    read.feed((tmp_path / "out/page.html").read_text())
    assert read.open == []
    kinds = [reference.partition(";")[0] for reference in read.refers]
    assert kinds == [*["data:image/svg+xml"] * 3, "data:image/gif"]  # returns by steps, by time, and of episodes
    text = "\n".join(read.text)
    assert "4 runs, of dqn on gym:CartPole-v1" in text
    assert "learning_rate=0.001" in text
    assert "learning_rate=0.0005" in text
    assert "config.learning_rate" in text
    # Means of the ended runs: 2 and 2.5 of the one setting, 10 of the other.
    assert "2/2\n2.25\n0.25\n2\n2.5\n1,000\n0:15" in text
    assert "1/2\n10\n0\n10\n10\n1,000\n0:15" in text
    assert '"learning_rate": 0.0005' in text
    assert json.loads(next(text for text in read.text if text.startswith("{")))["agent"] == "dqn"


def test_a_page_that_can_not_be_is_refused(tmp_path, capsys):
    make(tmp_path / "x")
    assert cli.main(["report", str(tmp_path / "x"), "-o", str(tmp_path / "page.pdf")]) == 2
    assert "page.pdf is not a name for a page" in capsys.readouterr().err
    assert cli.main(["report", str(tmp_path / "none"), "-o", str(tmp_path / "page.html")]) == 2
    assert not list(tmp_path.glob("page*"))


def test_the_spread_of_one_run_is_of_its_episodes_and_of_several_of_their_means(tmp_path):
    groups = {}
    for name, returns in (("a", [9.0, 10.0, 11.0]), ("b", [20.0, 22.0, 24.0])):
        run = make(tmp_path / name)
        run.write_evaluation({"returns": returns})
        groups[name] = [run]
    rows = [
        list(row)[1:6] for row in report._scores({**groups, "both": [*groups["a"], *groups["b"]]}, "environment_steps")
    ]
    assert rows[0] == ["1/1", "10", "0.8165", "9", "11"]
    assert rows[2] == ["2/2", "16", "6", "10", "22"]


def test_runs_without_a_time_in_common_have_no_line_by_time_and_the_page_says_so(tmp_path):
    make(tmp_path / "a0")
    log = make(tmp_path / "a1", seed=1).logs / "evaluator.csv"
    header, *rows = (line.split(",") for line in log.read_text().split())
    late = [[*row[:-1], str(float(row[-1]) + 1e4)] for row in rows]
    log.write_text("\n".join(map(",".join, [header, *late, ""])))
    page = report.write_report([tmp_path], tmp_path / "page.html").read_text()
    assert page.count("data:image/svg+xml") == 2  # by steps, and of episodes
    assert "have no range of &#x27;wall_time_s&#x27; in common" in page


def test_runs_with_one_evaluation_have_their_training_curves(tmp_path):
    for seed in (0, 1):
        log = make(tmp_path / f"a{seed}", seed=seed, returns=(5.0,)).logs / "evaluator.csv"
        header, *rows = log.read_text().split()
        log.write_text("\n".join([header, rows[-1], ""]))
    figure = plots.curves_figure(plots.group_runs([tmp_path]))
    (axes,) = figure.axes
    assert any(len(line.get_xdata()) > 1 for line in axes.get_lines())
    assert report.write_report([tmp_path], tmp_path / "page.html").read_text().count("data:image/svg+xml") == 3


@pytest.mark.parametrize("value", ["-", "12", "1,005", "0:15", "1.5e+06", "-3.2"])
def test_numbers_stand_to_the_right(value):
    assert report._is_number(value)
    assert not report._is_number(f"seed {value}")
