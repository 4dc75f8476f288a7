"""Loggers: rows on disk, exactly those that count after a resume."""

import os
import signal
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from acme_ext.errors import RunError, UsageError
from acme_ext.utils import loggers
from acme_ext.utils.rundir import RunDirectory


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory(tmp_path)


def _logger(run: RunDirectory, **kwargs):
    return loggers.make_logger(run, "actor", step_key="steps", **kwargs)


def _write(run: RunDirectory, *rows: dict) -> None:
    logger = _logger(run)
    for row in rows:
        logger.write(row)
    logger.close()


def _scalars(run: RunDirectory, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(run.tensorboard / "actor"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_rows_come_back_as_numbers_from_csv_and_tensorboard(run):
    logger = _logger(run)
    logger.write({"steps": jnp.int32(1), "loss": jnp.float32(0.5), "done": np.bool_(True), "norm": np.ones((1, 1))})
    logger.write({"steps": np.int64(2**53 + 1), "loss": jnp.bfloat16(1.5), "done": False, "norm": 0.1})
    logger.close()
    logger.close()
    columns = loggers.read_csv(loggers.csv_path(run, "actor"))
    assert {name: values.tolist() for name, values in columns.items()} == {
        "steps": [1, 2**53 + 1],
        "loss": [0.5, 1.5],
        "done": [1, 0],
        "norm": [1.0, 0.1],
    }
    assert columns["steps"].dtype == np.int64
    assert columns["norm"].dtype == np.float64
    assert _scalars(run, "actor/loss") == [(1, 0.5), (2**53 + 1, 1.5)]


def test_tensorboard_has_no_curve_of_which_actor_a_row_is(run):
    _write(run, {"steps": 1, "actor": 3, "episode_return": 2.0})
    events = EventAccumulator(str(run.tensorboard / "actor"))
    events.Reload()
    assert events.Tags()["scalars"] == ["actor/episode_return"]


def test_tensorboard_shows_the_config_and_compares_runs_by_it(tmp_path):
    for name, rate in (("a", 1e-3), ("b", 1e-4)):
        run = RunDirectory(tmp_path / name)
        config = {"agent": "dqn", "config": {"learning_rate": rate, "dueling": True, "sizes": [64, 64], "delta": None}}
        for _ in range(2):  # a run that goes on shows them once
            loggers.describe_run(run, {**config, "run": {"steps": 5}})
        logger = loggers.make_logger(run, "evaluator", step_key="steps")
        logger.write({"steps": 1, "episode_return_mean": 7.0 * rate})
        logger.close()
        events = EventAccumulator(str(run.tensorboard))
        events.Reload()
        (text,) = events.Tensors("config/text_summary")
        assert '"learning_rate": ' in text.tensor_proto.string_val[0].decode()
    assert _hyperparameters(tmp_path) == [
        {"agent": "dqn", "learning_rate": 1e-3, "dueling": True, "sizes": "[64, 64]", "delta": "None", "return": 7e-3},
        {"agent": "dqn", "learning_rate": 1e-4, "dueling": True, "sizes": "[64, 64]", "delta": "None", "return": 7e-4},
    ]


def _hyperparameters(folder) -> list[dict]:
    """Returns what TensorBoard's page of hyperparameters has of the runs below a folder."""
    from tensorboard import context
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

    multiplexer = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={"hparams": 0})
    multiplexer.AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(folder))
    there = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    metadata = there.hparams_metadata(context.RequestContext(), "")
    experiment = there.experiment_from_metadata(context.RequestContext(), "", metadata)
    columns = [api_pb2.ColParams(hparam=info.name) for info in experiment.hparam_infos]
    columns += [api_pb2.ColParams(metric=info.name) for info in experiment.metric_infos]
    request = api_pb2.ListSessionGroupsRequest(
        allowed_statuses=[api_pb2.STATUS_UNKNOWN], col_params=columns, start_index=0, slice_size=9
    )
    handler = list_session_groups.Handler(context.RequestContext(), there, "", request)
    rows = []
    for group in sorted(handler.run().session_groups, key=lambda group: group.name):
        row = {name: getattr(value, value.WhichOneof("kind")) for name, value in group.hparams.items()}
        (metric,) = (v for v in group.metric_values if v.name.tag == "evaluator/episode_return_mean")
        rows.append({**row, "return": pytest.approx(metric.value)})
    return rows


def test_a_key_that_comes_later_adds_a_column_and_a_missing_one_is_nan(run, monkeypatch):
    monkeypatch.setattr(loggers, "_TENSORBOARD_INTERVAL_S", 0.0)
    _write(run, {"steps": 1, "loss": 1.0})
    logger = _logger(run)
    for step in range(2, 10):
        logger.write({"steps": step, "loss": 1.0, **({"solved_after": step / 2, "a": 1} if step % 4 == 0 else {})})
    logger.write({"steps": 10})
    with pytest.raises(ValueError, match="needs 'steps'"):
        logger.write({"loss": 1.0})
    with pytest.raises(UsageError, match="a column's name has no comma"):
        logger.write({"steps": 11, "a,b": 1.0})
    logger.close()
    assert loggers.truncate(run, "actor", "steps", 9) == 1
    _write(run, {"steps": 10, "later": 5})
    columns = loggers.read_csv(loggers.csv_path(run, "actor"))
    assert list(columns) == ["loss", "steps", "a", "solved_after", "later"]
    nan = np.nan
    np.testing.assert_array_equal(columns["steps"], range(1, 11))
    np.testing.assert_array_equal(columns["loss"], [*[1.0] * 9, nan])
    np.testing.assert_array_equal(columns["solved_after"], [nan, nan, nan, 2, nan, nan, nan, 4, nan, nan])
    np.testing.assert_array_equal(columns["later"], [*[nan] * 9, 5])
    assert _scalars(run, "actor/solved_after") == [(4, 2.0), (8, 4.0)]


def test_a_log_is_read_in_blocks(run, monkeypatch):
    monkeypatch.setattr(loggers, "_BLOCK", 3)
    _write(run, *({"steps": step, "loss": step if step < 4 else step + 0.5} for step in range(6)))
    path = loggers.csv_path(run, "actor")
    path.write_text(path.read_text() + "5.")
    assert [block["steps"].tolist() for block in loggers.read_blocks(path, ["steps"])] == [[0, 1, 2], [3, 4, 5], []]
    columns = loggers.read_csv(path)
    assert columns["loss"].tolist() == [0, 1, 2, 3, 4.5, 5.5]
    assert columns["steps"].dtype == np.int64
    with pytest.raises(UsageError, match=r"actor\.csv has no column 'q'; it has loss, steps"):
        list(loggers.read_blocks(path, ["q"]))


@pytest.mark.parametrize("value", ["text", None, np.ones(2), {}])
def test_what_is_no_number_is_named(run, value):
    with pytest.raises(TypeError, match="'loss'"):
        _write(run, {"steps": 1, "loss": value})


@pytest.mark.parametrize("key", ["", "a,b", 'a"b', "a\nb"])
def test_names_that_csv_would_have_to_quote_are_refused(run, key):
    with pytest.raises(UsageError, match="a column's name has no comma, quote or line end"):
        _write(run, {"steps": 1, key: 2.0})


def test_a_resumed_run_may_log_more(run):
    _write(run, {"steps": 1, "loss": 1.0}, {"steps": 2, "loss": 2.0})
    _write(run, {"steps": 3, "q": 5.0, "loss": 3.0, "b": 1}, {"steps": 4, "loss": 4.0})
    columns = loggers.read_csv(loggers.csv_path(run, "actor"))
    np.testing.assert_array_equal(columns["steps"], [1, 2, 3, 4])
    np.testing.assert_array_equal(columns["loss"], [1, 2, 3, 4])
    np.testing.assert_array_equal(columns["q"], [np.nan, np.nan, 5, np.nan])
    np.testing.assert_array_equal(columns["b"], [np.nan, np.nan, 1, np.nan])
    assert loggers.truncate(run, "actor", "steps", 3) == 1
    assert _scalars(run, "actor/q") == [(3, 5.0)]


def test_a_damaged_line_is_told_with_the_file(run):
    _write(run, {"steps": 1, "loss": 1.0})
    path = loggers.csv_path(run, "actor")
    path.write_text(path.read_text() + "x,2\n")
    with pytest.raises(UsageError, match=r"actor\.csv is damaged: could not convert string to float: b?'x'"):
        loggers.read_csv(path)


def test_a_kill_loses_no_row(run):
    code = (
        "import os, signal, sys\n"
        "from acme_ext.utils import loggers\n"
        "from acme_ext.utils.rundir import RunDirectory\n"
        "logger = loggers.make_logger(RunDirectory(sys.argv[1]), 'actor', step_key='steps')\n"
        "for step in range(100): logger.write({'steps': step, 'loss': 1.0})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run.path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert loggers.read_csv(loggers.csv_path(run, "actor"))["steps"].tolist() == list(range(100))
    assert _scalars(run, "actor/loss")[0] == (0, 1.0)


def test_a_resume_forgets_the_rows_after_its_checkpoint(run, monkeypatch):
    monkeypatch.setattr(loggers, "_TENSORBOARD_INTERVAL_S", 0.0)
    _write(run, *({"steps": step, "loss": float(step)} for step in range(5)))
    path = loggers.csv_path(run, "actor")
    with path.open("a") as file:
        file.write("5.0")  # torn
    assert loggers.truncate(run, "actor", "steps", 2) == 2
    assert loggers.truncate(run, "actor", "steps", 2) == 0
    _write(run, {"steps": 3, "loss": 30.0}, {"steps": 4, "loss": 40.0})
    assert path.read_text().count("steps") == 1
    assert loggers.read_csv(path)["steps"].tolist() == [0, 1, 2, 3, 4]
    assert loggers.read_csv(path)["loss"].tolist() == [0.0, 1.0, 2.0, 30.0, 40.0]
    assert _scalars(run, "actor/loss") == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0)]


@pytest.mark.parametrize("torn", ["5.0", "5.0,", "5.0,5", "\n", "5.0\r\n"])
def test_a_torn_end_is_cut_before_rows_are_appended(run, torn):
    _write(run, {"steps": 1, "loss": 1.0})
    path = loggers.csv_path(run, "actor")
    with path.open("a") as file:
        file.write(torn)
    assert loggers.read_csv(path)["steps"].tolist() == [1]
    _write(run, {"steps": 2, "loss": 2.0})
    assert loggers.read_csv(path)["steps"].tolist() == [1, 2]


def test_a_torn_header_starts_the_file_anew(run):
    path = loggers.csv_path(run, "actor")
    path.parent.mkdir()
    path.write_text("los")
    assert loggers.truncate(run, "actor", "steps", 0) == 0
    _write(run, {"steps": 2, "loss": 2.0})
    assert loggers.read_csv(path)["loss"].tolist() == [2.0]


def test_loggers_closed_and_opened_in_one_second_keep_each_others_curves(run):
    for step in range(3):
        _write(run, {"steps": step, "loss": float(step)})
    assert _scalars(run, "actor/loss") == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_tensorboard_gets_the_first_and_the_last_of_a_burst(run, monkeypatch):
    monkeypatch.setattr(loggers, "_TENSORBOARD_INTERVAL_S", 1000.0)
    _write(run, *({"steps": step, "loss": float(step)} for step in range(50)))
    assert _scalars(run, "actor/loss") == [(0, 0.0), (49, 49.0)]
    assert len(loggers.read_csv(loggers.csv_path(run, "actor"))["steps"]) == 50


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's always-full device")
def test_a_full_disk_is_a_run_error(run):
    path = loggers.csv_path(run, "actor")
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    logger = _logger(run)
    with pytest.raises(RunError, match=r"the disk that holds .*actor\.csv is full"):
        logger.write({"steps": 1, "loss": 1.0})
    with pytest.raises(RunError, match="is full"):
        logger.close()
    logger.close()


def test_missing_files_and_columns_are_told(run):
    assert loggers.truncate(run, "actor", "steps", 3) == 0
    with pytest.raises(UsageError, match=r"actor\.csv doesn't exist"):
        loggers.read_csv(loggers.csv_path(run, "actor"))
    _write(run, {"steps": 1, "loss": 1.0})
    with pytest.raises(UsageError, match=r"has no column 'learner_steps'; it has \['loss', 'steps'\]"):
        loggers.truncate(run, "actor", "learner_steps", 3)
    (empty := run.path / "empty.csv").touch()
    assert loggers.read_csv(empty) == {}
