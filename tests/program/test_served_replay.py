"""Programs whose replay is in embedded tables, served to the other nodes."""

import json
import signal

import pytest
from programs import check_finished, rows, saved

from acme_ext.learning.checkpoints import CheckpointStore

_FOR_EVER = 10**7


def inserted(run, shards):
    """Returns the rows inserted into each shard, as of a run's last checkpoint, in which tables are embedded."""
    restored = CheckpointStore(run / "checkpoints").restore({})
    assert restored is not None
    found = [json.loads((restored.path / "replay" / str(i) / "table.json").read_text()) for i in range(shards)]
    return [state["inserted"] for state in found]


def test_a_program_needs_no_reverb_and_resumes_what_was_stopped(tmp_path, train):
    run = tmp_path / "run"
    options = ("--table", "embedded", "--replay-shards", "2")
    program = train(run, _FOR_EVER, *options)
    program.wait_for(lambda: bool(rows(run, "learner")) and program.steps() > 500)
    program.process.send_signal(signal.SIGTERM)
    code, out, err = program.end()
    assert code == 128 + signal.SIGTERM
    assert "Traceback" not in err
    stopped_at = saved(run)[-1]
    assert f"stopped at step {stopped_at:,}" in out
    before = inserted(run, 2)
    assert min(before) > 100
    assert abs(sum(before) - stopped_at) < 250
    steps = stopped_at + 500
    code, out, err = train(run, steps, *options).end()
    assert code == 0
    assert f"resuming {run} at step {stopped_at:,}." in err
    check_finished(run, out, steps, 40)
    after = inserted(run, 2)
    assert all(0 < later - earlier < 500 for earlier, later in zip(before, after, strict=True))
    assert abs(sum(after) - sum(before) - (saved(run)[-1] - stopped_at)) < 250
    assert (run / "logs/nodes/replay-0.log").read_text() == ""


@pytest.mark.slow
def test_a_replay_that_is_killed_is_restored_from_the_last_checkpoint(tmp_path, train):
    run = tmp_path / "run"
    program = train(run, _FOR_EVER, "--table", "embedded", "--restart", "1", "--checkpoint-every", "0.5")
    program.wait_for(lambda: saved(run) and program.steps() > saved(run)[-1] + 100)
    program.node("replay").kill()
    program.wait_for(lambda: "the program is started again from its last checkpoint." in program.err())
    at = program.steps()
    program.wait_for(lambda: program.steps() > at + 300)
    program.interrupt()
    code, _, err = program.end()
    assert code == 128 + signal.SIGINT
    assert "replay was killed by SIGKILL" in err
    assert "Traceback" not in err
    (total,) = inserted(run, 1)
    assert abs(total - saved(run)[-1]) < 250


@pytest.mark.slow
def test_a_program_on_threads_is_interrupted_and_saves(tmp_path, train):
    run = tmp_path / "run"
    program = train(run, _FOR_EVER, "--table", "embedded", "--on", "threads")
    program.wait_for(lambda: bool(rows(run, "learner")) and program.steps() > 300)
    program.interrupt()
    code, _, err = program.end()
    assert code == 128 + signal.SIGINT
    assert "Traceback" not in err
    (total,) = inserted(run, 1)
    assert abs(total - saved(run)[-1]) < 250
