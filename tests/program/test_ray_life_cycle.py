"""Programs on a Ray of their own: every way of ending leaves nothing behind but what the next part goes on from."""

import importlib.util
import re
import signal
import time
from pathlib import Path

import pytest
from programs import check_a_last_save_that_fails, check_finished, check_second_interrupt, saved, state

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `ray`"),
    pytest.mark.timeout(900),
]

_FOR_EVER = 10**7
_RAY = ("--on", "ray")


def _temporary() -> set[Path]:
    return {*Path("/tmp").glob("acme-ext-ray-*"), *Path("/tmp").glob("acme-ext-[0-9]*/*")}


@pytest.mark.release
def test_a_killed_launcher_takes_all_along_and_the_command_goes_on_to_its_end(tmp_path, train):
    run = tmp_path / "run"
    program = train(run, _FOR_EVER, *_RAY, "--checkpoint-every", "0.5", LAB_WALK_SERVER="")
    program.wait_for(lambda: saved(run) and program.steps() > saved(run)[-1] + 50)
    names = [" ".join(process.cmdline()) for process in program.processes()]
    assert any("raylet" in name for name in names)
    assert any("launch.hosts.ray.host_server" in name for name in names)
    assert program.servers()
    program.process.kill()
    code, _, err = program.end()
    assert code == -signal.SIGKILL
    assert "Traceback" not in err
    stopped_at, seen = saved(run)[-1], program.steps()
    counted, inserted, learned = state(run)
    assert counted == stopped_at < seen

    # The same command goes on, has an actor killed that is started again, and is interrupted from the terminal.
    before = _temporary()
    program = train(run, _FOR_EVER, *_RAY, "--checkpoint-every", "1000", "--restart", "1")
    program.wait_for(lambda: program.steps() > seen + 100)
    made = _temporary() - before
    assert made
    killed = program.node_of_host("actor-1")
    killed.kill()
    program.wait_for(lambda: (other := program.node_of_host("actor-1")) is not None and other.pid != killed.pid)
    now = program.steps()
    program.wait_for(lambda: program.steps() > now + 300)
    program.interrupt()
    code, out, err = program.end()
    assert code == 128 + signal.SIGINT
    assert f"resuming {run} at step {stopped_at:,}." in err
    assert re.search(r"acme-ext: actor-1 on [\d.]+ was killed by SIGKILL and is started again\.\n", err)
    assert "stopping after a last save; Ctrl-C again stops at once." in err
    assert "acme-ext: restarts of nodes that had died: 1.\n" in err
    assert "Traceback" not in err
    last = saved(run)[-1]
    assert last > seen + 300
    assert f"stopped at step {last:,}; the same command resumes it. {run}" in out
    counted, inserted_then, learned_then = state(run)
    assert counted == last
    assert abs(last - stopped_at - (inserted_then - inserted)) < 500  # as without Ray
    assert learned_then > learned
    while made & _temporary():  # those of other tests that run meanwhile go, too
        time.sleep(0.5)

    # With a budget, it ends by itself.
    steps = last + 300
    code, out, err = train(run, steps, *_RAY).end()
    assert code == 0
    check_finished(run, out, steps, 40)


@pytest.mark.release
def test_a_node_that_raises_ends_the_program_with_its_traceback(tmp_path, train):
    """A proxy that a variable names stands between nobody, either."""
    run = tmp_path / "run"
    code, out, err = train(run, _FOR_EVER, *_RAY, LAB_WALK_RAISES_AT="300", http_proxy="http://127.0.0.1:9").end()
    assert (code, out) == (1, "")
    assert re.search(r"acme-ext: actor-[01] on [\d.]+ failed with exit code 1:\nTraceback", err)
    assert "ArithmeticError: the arm fell off\n" in err
    counted, inserted, learned = state(run)
    assert counted == saved(run)[-1] > 0
    assert abs(inserted - counted) < 250
    assert learned > 0


@pytest.mark.release
def test_a_second_interrupt_ends_everything_at_once(tmp_path, train):
    program = train(tmp_path / "run", _FOR_EVER, *_RAY, LAB_WALK_SERVER="", LAB_WALK_HANGS_AT="100")
    program.wait_for(lambda: program.hanging() == 2)
    check_second_interrupt(program)


@pytest.mark.release
def test_a_last_save_that_fails_is_told(tmp_path, train):
    program = train(tmp_path / "run", _FOR_EVER, *_RAY, "--checkpoint-every", "0.5")
    program.wait_for(lambda: bool(saved(tmp_path / "run")))
    check_a_last_save_that_fails(program, program.node_of_host("learner"))


def test_what_ray_can_not_do_is_said_in_a_sentence_and_nothing_is_written(tmp_path, train):
    code, out, err = train(tmp_path / "run", 100, *_RAY, "--resources", "learner=GPU:64").end()
    assert (code, out) == (2, "")
    assert "learner asks for 1 CPU, 64 GPU, which no host has; asked for are" in err
    code, out, err = train(tmp_path / "run", 100, *_RAY, "--ray-address", "127.0.0.1:9").end()
    assert (code, out) == (2, "")
    assert "no Ray cluster answers at '127.0.0.1:9'" in err
    assert not (tmp_path / "run").exists()
