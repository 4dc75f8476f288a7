"""Learning curves: which runs make a line, and what is drawn."""

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from acme_ext.errors import UsageError
from acme_ext.utils import plots
from acme_ext.utils.rundir import RunDirectory


def _run(path, evaluations=None, episodes=None, **config) -> RunDirectory:
    run = RunDirectory(path)
    about = {"agent": "dqn", "environment": "gym:CartPole-v1", "run": {}, "run_dir": str(path)}
    run.write_config({**about, **config})
    for label, key, points in (
        ("evaluator", "episode_return_mean", evaluations),
        ("actor", "episode_return", episodes),
    ):
        if points is not None:
            rows = [f"environment_steps,{key}", *(f"{x},{y}" for x, y in points)]
            (run.logs / f"{label}.csv").write_text("".join(f"{row}\n" for row in rows))
    return run


@pytest.fixture
def figure(monkeypatch) -> list[Figure]:
    """Gets the figures that are saved."""
    saved = []
    original = Figure.savefig

    def savefig(self, *args, **kwargs):
        saved.append(self)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return saved


def _bands(axes) -> list[np.ndarray]:
    return [collection.get_paths()[0].vertices for collection in axes.collections]


def _texts(axes) -> str:
    return " ".join(text.get_text() for text in axes.texts)


def test_one_run_is_a_line_with_its_training_returns_behind(tmp_path, figure):
    run = _run(tmp_path / "a", [(0, 1.0), (100, 5.0), (200, 9.0)], [(x, x / 20) for x in range(0, 201, 10)])
    out = plots.learning_curves({"dqn": [run.path]}, run.curve)
    assert out == run.curve
    assert matplotlib.image.imread(out).shape[2] == 4
    (axes,) = figure[0].axes
    behind, line = axes.lines
    np.testing.assert_allclose(line.get_xydata(), [(0, 1), (100, 5), (200, 9)])
    np.testing.assert_allclose(behind.get_ydata()[5:-5], np.arange(0, 10.1, 0.5)[5:-5])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("environment steps", "episode return")
    assert axes.get_title() == "gym:CartPole-v1"
    assert [text.get_text() for text in figure[0].legends[0].texts] == ["dqn"]
    assert "evaluation" in _texts(axes)
    assert _bands(axes) == []


def test_few_seeds_have_a_mean_and_a_band_from_least_to_greatest_on_their_common_range(tmp_path, figure):
    runs = [
        _run(tmp_path / "a", [(0, 0.0), (100, 10.0), (200, 20.0)]),
        _run(tmp_path / "b", [(50, 9.0), (150, 9.0)]),
    ]
    plots.learning_curves({"dqn": runs}, tmp_path / "x.svg")
    (axes,) = figure[0].axes
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_xydata(), [(50, 7.0), (100, 9.5), (150, 12.0)])
    (band,) = _bands(axes)
    assert {(50, 5), (50, 9), (100, 9), (100, 10), (150, 9), (150, 15)} <= {tuple(v) for v in band}
    assert "band: least to greatest seed" in _texts(axes)
    assert "dqn (2 seeds)" in figure[0].legends[0].texts[0].get_text()


def test_five_seeds_have_a_bootstrap_interval_that_repeats(tmp_path, figure):
    rng = np.random.default_rng(1)
    runs = [_run(tmp_path / str(i), [(0, rng.normal()), (10, 100 + rng.normal())]) for i in range(8)]
    for _ in range(2):
        plots.learning_curves({"dqn": runs}, tmp_path / "x.png")
    first, second = (_bands(f.axes[0])[0] for f in figure)
    np.testing.assert_array_equal(first, second)
    at_end = first[first[:, 0] == 10, 1]
    mean = figure[0].axes[0].lines[0].get_ydata()[-1]
    assert at_end.min() < mean < at_end.max()
    assert 0.5 < at_end.max() - at_end.min() < 3.0  # about four standard errors: 4 / sqrt(8)
    assert "95% bootstrap" in _texts(figure[0].axes[0])


def test_the_interquartile_mean_leaves_out_the_ends(tmp_path, figure):
    """Of eight seeds the middle four count, of five the middle three, of two both; as rliable has it."""
    ends = [-900.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 900.0]
    runs = [_run(tmp_path / str(i), [(0, end), (10, end)]) for i, end in enumerate(ends)]
    for members in (runs, runs[:5], runs[2:4]):
        plots.learning_curves({"dqn": members}, tmp_path / "x.png", aggregate="iqm")
    means = [float(made.axes[0].lines[0].get_ydata()[-1]) for made in figure]
    np.testing.assert_allclose(means, [3.5, 2.0, 2.5])
    for count in range(1, 12):
        values = np.random.default_rng(count).normal(size=(count, 3))
        wanted = stats.trim_mean(values, proportiontocut=0.25, axis=0)
        np.testing.assert_allclose(plots.interquartile_mean(values), wanted)
    band = _bands(figure[0].axes[0])[0][:, 1]
    assert band.min() <= 3.5 <= band.max()
    assert "95% bootstrap interval of the iqm" in _texts(figure[0].axes[0])


def test_runs_on_recorded_data_are_drawn_by_learner_steps(tmp_path, figure):
    run = _run(tmp_path / "a", [(0, 1.0)], data={"sha256": "x", "best": 1.0})
    (run.logs / "evaluator.csv").write_text("learner_steps,episode_return_mean\n5,1.0\n9,2.0\n")
    plots.learning_curves({"bc": [run]}, tmp_path / "x.png")
    (axes,) = figure[0].axes
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [(5, 1), (9, 2)])
    assert axes.get_xlabel() == "learner steps"


def test_by_learner_steps_evaluations_alone_are_drawn(tmp_path, figure):
    run = _run(tmp_path / "a", [(0, 1.0)], [(0, 5.0), (1, 6.0)])
    (run.logs / "evaluator.csv").write_text("environment_steps,learner_steps,episode_return_mean\n8,2,1.0\n16,4,2.0\n")
    plots.learning_curves({"dqn": [run]}, tmp_path / "x.png", "learner_steps")
    (axes,) = figure[0].axes
    np.testing.assert_allclose([line.get_xydata() for line in axes.lines], [[(2, 1), (4, 2)]])
    (run.logs / "evaluator.csv").unlink()
    with pytest.raises(UsageError, match="no column 'learner_steps'"):
        plots.learning_curves({"dqn": [run]}, tmp_path / "y.png", "learner_steps")


def test_runs_of_one_evaluation_each_at_nearly_the_same_step_are_one_point(tmp_path, figure):
    runs = [_run(tmp_path / str(steps), [(steps, value)]) for steps, value in ((2_000, 1.0), (2_004, 2.0))]
    plots.learning_curves({"ppo": runs}, tmp_path / "x.png")
    np.testing.assert_allclose(figure[0].axes[0].lines[0].get_xydata(), [(2_002, 1.5)])


@pytest.mark.parametrize("x", ["environment_steps", "wall_time_s"])
def test_many_lines_of_one_evaluation_each_show_their_training(tmp_path, figure, x):
    runs = {}
    for i in range(6):
        runs[f"lr={i}"] = [_run(tmp_path / f"{i}{j}", [(100, i)], [(y, 3.0) for y in range(0, 100, 5)]) for j in "ab"]
        for seed, run in enumerate(runs[f"lr={i}"]):  # the second seed takes twice the time
            for path in run.logs.iterdir():
                head, *rows = path.read_text().split()
                rows = [f"{row},{float(row.split(',')[0]) * (1 + seed)}" for row in rows]
                path.write_text("".join(f"{row}\n" for row in (f"{head},wall_time_s", *rows)))
    plots.learning_curves(runs, tmp_path / "x.png", x)
    training, evaluations = figure[0].axes[0].lines[::2], figure[0].axes[0].lines[1::2]
    assert [len(line.get_xdata()) for line in evaluations] == [1] * 6
    assert all(len(line.get_xdata()) > 5 for line in training)
    if x == "environment_steps":
        alone = {label: [_run(tmp_path / f"alone{label}", [(100, 1.0)])] for label in runs}
        plots.learning_curves(alone, tmp_path / "x.png", x)
        assert figure[1].axes[0].get_xlim()[0] == 0


def test_runs_without_evaluations_show_their_training(tmp_path, figure):
    run = _run(tmp_path / "a", None, [(x, 3.0) for x in range(50)])
    plots.learning_curves({"dqn": [run]}, tmp_path / "x.png")
    (axes,) = figure[0].axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 3.0)
    assert "dqn: training, smoothed" in _texts(axes)


def test_of_a_long_log_means_are_drawn(tmp_path, figure, monkeypatch):
    monkeypatch.setattr(plots, "_KEPT", 256)
    monkeypatch.setattr(plots.loggers, "_BLOCK", 100)
    rng = np.random.default_rng(0)
    n = 5_123
    episodes = [(x, np.sin(x / 500) if x % 7 else np.nan) for x in range(n)]
    run = _run(tmp_path / "a", None, [episodes[i] for i in sorted(range(n), key=lambda i: i + rng.integers(3))])
    plots.learning_curves({"dqn": [run]}, tmp_path / "x.png")
    x, y = figure[0].axes[0].lines[0].get_xydata().T
    assert 128 <= len(x) <= 256
    np.testing.assert_allclose([x[0], x[-1]], [0, n], atol=n / 128)
    assert (np.diff(x) > 0).all()
    np.testing.assert_allclose(y[5:-5], np.sin(x / 500)[5:-5], atol=0.02)


def test_many_lines_have_their_legend_beside_the_axes(tmp_path, figure):
    runs = {f"lr={i}": [_run(tmp_path / str(i), [(0, i), (1, i)], [(0, i), (1, i)])] for i in range(9)}
    plots.learning_curves(runs, tmp_path / "x.png")
    (axes,) = figure[0].axes
    assert axes.get_legend() is None
    assert [text.get_text() for text in figure[0].legends[0].texts] == list(runs)
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == len(axes.lines) == 9


@pytest.mark.parametrize(
    ("runs", "out", "x", "message"),
    [
        ({"a": ["nothing"]}, "x.png", "environment_steps", "nothing has nothing to plot"),
        ({"a": ["far", "near"]}, "x.png", "environment_steps", "no range of 'environment_steps' in common"),
        ({"a": ["near", "training"]}, "x.png", "environment_steps", "no curve in common"),
        ({"a": ["near"]}, "x.png", "hours", "no column 'hours'; it has environment_steps, episode_return_mean"),
        ({"a": ["near"]}, "x.jpegg", "environment_steps", "is not a name for a figure"),
        ({"a": ["near"]}, "near/config.json/x.png", "environment_steps", r"config\.json is a file"),
        ({"a": ["missing"]}, "x.png", "environment_steps", "missing is not a run directory"),
        ({}, "x.png", "environment_steps", "at least one run"),
    ],
)
def test_what_cannot_be_plotted_is_told_and_writes_nothing(tmp_path, runs, out, x, message):
    _run(tmp_path / "nothing", [])
    _run(tmp_path / "near", [(0, 1.0), (1, 2.0)])
    _run(tmp_path / "far", [(5, 1.0), (6, 2.0)])
    _run(tmp_path / "training", None, [(0, 1.0), (1, 2.0)])
    with pytest.raises(UsageError, match=message):
        plots.learning_curves({k: [tmp_path / name for name in names] for k, names in runs.items()}, tmp_path / out, x)
    assert not (tmp_path / out).exists()


def _labels(tmp_path, *configs: dict) -> list[str]:
    paths = [_run(tmp_path / str(i), **config).path for i, config in enumerate(configs)]
    return list(plots.group_runs(paths))


def test_seeds_of_one_config_are_a_group_and_a_run_counts_once(tmp_path):
    runs = [_run(tmp_path / str(seed), seed=seed, config={"lr": 1e-3}) for seed in range(3)]
    groups = plots.group_runs([*[run.path for run in runs], runs[0]])
    assert {label: [r.path for r in members] for label, members in groups.items()} == {
        "dqn, gym:CartPole-v1": [run.path for run in runs]
    }


def test_the_config_of_another_program_below_a_folder_is_passed_over(tmp_path):
    _run(tmp_path / "mine", evaluations=((1, 2.0), (2, 3.0)))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "bert"}')
    assert [run.path for run in plots._below(tmp_path)] == [tmp_path / "mine"]


def test_a_field_that_an_earlier_version_lacks_and_none_are_the_same(tmp_path):
    new = {"config": {"learning_rate": 0.1, "max_abs_reward": None}, "seed": 0}
    assert len(_labels(tmp_path, new, {"config": {"learning_rate": 0.1}, "seed": 1})) == 1
    script = {"module": "mine", "name": "make"}
    assert not any("absent" in label for label in _labels(tmp_path, new, {**new, "environment": script}))


def test_labels_are_made_of_what_differs(tmp_path):
    assert _labels(tmp_path / "a", {"agent": "dqn", "config": {"lr": 1}}, {"agent": "ppo", "config": {}}) == [
        "dqn",
        "ppo",
    ]
    assert _labels(tmp_path / "b", {"config": {"lr": 0.1 + 0.2}}, {"config": {"lr": 0.1}}, {}) == [
        "lr=(absent)",
        "lr=0.1",
        "lr=0.3",
    ]
    assert _labels(tmp_path / "c", {"a": {"lr": 1}, "b": {"lr": 2}}, {"a": {"lr": 1.5}, "b": {"lr": 3}}) == [
        "a.lr=1, b.lr=2",
        "a.lr=1.5, b.lr=3",
    ]


def test_labels_are_short_when_much_differs_and_differ_when_values_look_alike(tmp_path):
    much = [{f"f{i}": i + j for i in range(6)} for j in range(2)]
    assert _labels(tmp_path / "a", *much) == ["f0=0", "f0=1"]
    assert _labels(tmp_path / "b", {"lr": 0.10000001}, {"lr": 0.10000002}) == ["lr=0.1 #1", "lr=0.1 #2"]


def test_lines_are_in_the_order_of_their_values(tmp_path):
    rates = (0.001, 0.0001, 0.003, 1)
    assert _labels(tmp_path / "a", *({"config": {"lr": rate}} for rate in rates)) == [
        "lr=0.0001",
        "lr=0.001",
        "lr=0.003",
        "lr=1",
    ]
    both = [{"agent": agent, "config": {"lr": rate}} for agent in ("ppo", "dqn") for rate in (10, 2)]
    assert _labels(tmp_path / "b", *both) == ["ppo, lr=2", "ppo, lr=10", "dqn, lr=2", "dqn, lr=10"]


def test_how_far_runs_went_is_no_difference(tmp_path):
    runs = [_run(tmp_path / str(i), seed=i, run={"steps": 100 * i}) for i in (1, 2)]
    assert list(plots.group_runs(runs)) == ["dqn, gym:CartPole-v1"]


def test_runs_of_one_seed_are_not_called_seeds(tmp_path, figure):
    runs = [_run(tmp_path / str(i), [(0, 0.0), (i, 1.0)], seed=7, run={"steps": i}) for i in (1, 2)]
    plots.learning_curves(plots.group_runs(runs), tmp_path / "x.png")
    assert [text.get_text() for text in figure[0].legends[0].texts] == ["dqn, gym:CartPole-v1 (2 runs)"]


def test_a_folder_stands_for_the_runs_below_it(tmp_path):
    wanted = [_run(tmp_path / "sweep" / name, [(0, 1.0)], seed=i) for i, name in enumerate("ab")]
    wanted.append(_run(tmp_path / "sweep" / "more" / "c", None, [(0, 1.0)], seed=3))
    _run(tmp_path / "sweep" / "begun")  # has nothing to plot yet
    _run(wanted[0].path / "checkpoints" / "copy", [(0, 1.0)], seed=4)  # what is in a run is the run's
    (members,) = plots.group_runs([tmp_path / "sweep", wanted[0]]).values()
    assert [run.path for run in members] == [run.path for run in wanted]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty is not a run directory: there is no config\.json in it"):
        plots.group_runs([tmp_path / "empty"])


@pytest.mark.parametrize(("lines", "name"), [(1, "a"), (4, "learning_rate"), (4, "of a long name " * 4), (7, "n_step")])
def test_the_legend_is_outside_the_axes(tmp_path, figure, lines, name):
    runs = {f"{name}={i}": [_run(tmp_path / str(i), [(0, i), (1, i)])] for i in range(lines)}
    plots.learning_curves(runs, tmp_path / "x.png")
    (drawn,) = figure
    legend, axes = drawn.legends[0].get_window_extent(), drawn.axes[0].get_window_extent()
    assert not legend.overlaps(axes)
    assert drawn.bbox.x1 >= legend.x1
    assert drawn.bbox.y1 >= legend.y1


def test_a_path_that_is_no_run_is_told(tmp_path):
    with pytest.raises(UsageError, match="is not a run directory"):
        plots.group_runs([tmp_path])
