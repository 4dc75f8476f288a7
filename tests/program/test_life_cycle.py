"""Programs of processes: every way of ending leaves nothing behind but what the next part goes on from."""

import re
import signal
import time

from programs import rows, saved, state

_FOR_EVER = 10**7
_TWO_ACTORS = 40  # steps by which two actors may pass the budget, on a machine that is busy


def test_a_killed_launcher_takes_all_along_and_the_command_goes_on_to_its_end(tmp_path, train):
    run = tmp_path / "run"
    program = train(run, _FOR_EVER, "--checkpoint-every", "0.5")
    program.wait_for(lambda: saved(run) and program.steps() > saved(run)[-1] + 50)
    assert len(program.processes()) >= 8  # the launcher, the supervisor, 6 nodes
    assert len(program.listening()) >= 3  # replay, learner, coordinator
    program.process.kill()
    code, _, err = program.end()
    assert code == -signal.SIGKILL
    assert "Traceback" not in err
    stopped_at, seen = saved(run)[-1], program.steps()
    assert stopped_at < seen
    counted, inserted, learned = state(run)
    assert counted == stopped_at

    # The same command goes on, and is interrupted from the terminal.
    program = train(run, _FOR_EVER, "--checkpoint-every", "1000")
    program.wait_for(lambda: program.steps() > seen + 300)
    program.interrupt()
    code, out, err = program.end()
    assert code == 128 + signal.SIGINT
    assert f"resuming {run} at step {stopped_at:,}." in err
    assert "stopping after a last save; Ctrl-C again stops at once." in err
    assert "Traceback" not in err
    last = saved(run)[-1]
    assert last > seen + 300
    assert f"stopped at step {last:,}; the same command goes on. {run}" in out
    counted, inserted_then, learned_then = state(run)
    assert counted == last
    # What was restored and what came since, but for two actors' last bursts, and what the first part's checkpoint holds
    # that was not reported yet when it was made.
    assert 0 <= last - stopped_at - (inserted_then - inserted) < 250
    assert learned_then > learned

    # With a budget, it ends by itself, and the logs have no step twice.
    steps = last + 300
    program = train(run, steps)
    code, out, err = program.end()
    assert code == 0
    assert f"resuming {run} at step {last:,}." in err
    assert steps <= saved(run)[-1] <= steps + _TWO_ACTORS
    assert re.search(r"^evaluation  return \d", out, re.MULTILINE)
    assert (run / "curve.png").is_file()
    for label in ("actor", "learner"):
        logged = rows(run, label)
        assert logged == sorted(logged)
        assert logged[-1] <= saved(run)[-1]
    # Episodes have 10 steps: of each part an actor's last may be unfinished, and what a kill took is not counted.
    assert len(rows(run, "actor")) <= saved(run)[-1] / 10
    assert len(rows(run, "actor")) >= saved(run)[-1] / 10 - 2 * 3 - 10
    assert set(rows(run, "actor", "actor")) == {0, 1}
    assert min(rows(run, "actor", "parameter_lag")) >= 0
    assert rows(run, "evaluator") == [saved(run)[-1]]


def test_a_second_interrupt_and_a_killed_supervisor_leave_nothing(tmp_path, train):
    run = tmp_path / "run"
    program = train(run, _FOR_EVER)
    program.wait_for(lambda: program.steps() > 100)
    program.supervisor().kill()
    code, out, err = program.end()
    assert (code, out) == (1, "")
    assert "acme-ext: the program's supervisor was killed by SIGKILL." in err

    seen = program.steps()
    program = train(run, _FOR_EVER)
    program.wait_for(lambda: program.steps() > seen)
    program.interrupt()
    time.sleep(0.3)
    program.interrupt()
    code, _, err = program.end()
    assert code == 128 + signal.SIGINT
    assert "Traceback" not in err


def test_an_interrupt_before_anything_runs_is_no_failure(tmp_path, train):
    program = train(tmp_path / "run", _FOR_EVER)
    program.wait_for(lambda: any("acme_ext.launch.supervisor" in p.cmdline() for p in program.processes()))
    program.interrupt()
    code, out, err = program.end()
    assert code == 128 + signal.SIGINT
    assert "stopped at step 0" in out
    assert err == ""
