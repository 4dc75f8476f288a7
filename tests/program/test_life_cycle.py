"""Programs of processes: every way of ending leaves nothing behind but what the next part goes on from."""

import os
import signal

import pytest
from programs import check_finished, check_second_interrupt, listening_here, rows, saved, state

_FOR_EVER = 10**7
_TWO_ACTORS = 40  # steps by which two actors may pass the budget, on a machine that is busy


@pytest.mark.slow
def test_a_killed_launcher_takes_all_along_and_the_command_goes_on_to_its_end(tmp_path, train):
    run = tmp_path / "run"
    program = train(run, _FOR_EVER, "--checkpoint-every", "0.5", LAB_WALK_SERVER="")
    program.wait_for(lambda: saved(run) and program.steps() > saved(run)[-1] + 50)
    assert len(program.processes()) - len(program.servers()) >= 9  # launcher, keeper, supervisor, 6 nodes
    assert len(program.servers()) >= 3  # of the environment whose specs were asked for, and of those that act
    ports = program.listening()
    assert len(ports) >= 3  # replay, learner, coordinator
    if os.readlink(f"/proc/{program.supervisor().pid}/ns/net") != os.readlink("/proc/self/ns/net"):
        assert not set(ports) & listening_here()
    else:
        assert "the program's ports are open to the network" in program.err()
    program.process.kill()
    code, _, err = program.end()
    assert code == -signal.SIGKILL
    assert "Traceback" not in err
    stopped_at, seen = saved(run)[-1], program.steps()
    assert stopped_at < seen
    counted, inserted, learned = state(run)
    assert counted == stopped_at

    # The same command goes on, with ports for all to reach, and is interrupted from the terminal.
    program = train(run, _FOR_EVER, "--checkpoint-every", "1000", "--open-ports")
    program.wait_for(lambda: program.steps() > seen + 300)
    assert os.readlink(f"/proc/{program.supervisor().pid}/ns/net") == os.readlink("/proc/self/ns/net")
    ports = program.listening()
    assert len(ports) >= 3
    assert set(ports) <= listening_here()
    program.interrupt()
    code, out, err = program.end()
    assert code == 128 + signal.SIGINT
    assert f"resuming {run} at step {stopped_at:,}." in err
    assert "stopping after a last save; Ctrl-C again stops at once." in err
    assert "Traceback" not in err
    last = saved(run)[-1]
    assert last > seen + 300
    assert f"stopped at step {last:,}; the same command resumes it. {run}" in out
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
    check_finished(run, out, steps, _TWO_ACTORS)
    # Episodes have 10 steps: of each part an actor's last may be unfinished, and what a kill took is not counted.
    assert len(rows(run, "actor")) <= saved(run)[-1] / 10
    assert len(rows(run, "actor")) >= saved(run)[-1] / 10 - 2 * 3 - 10
    assert min(rows(run, "actor", "parameter_lag")) >= 0
    assert rows(run, "evaluator") == [saved(run)[-1]]


@pytest.mark.slow
@pytest.mark.parametrize("who", ["supervisor", pytest.param("keeper", marks=pytest.mark.release)])
def test_whoever_of_those_above_the_nodes_is_killed_takes_all_along(who, tmp_path, train):
    program = train(tmp_path / "run", _FOR_EVER, "--open-ports", LAB_WALK_SERVER="")
    program.wait_for(lambda: program.steps() > 100)
    assert program.listening()
    assert program.servers()
    getattr(program, who)().kill()
    code, out, err = program.end()
    assert (code, out) == (1, "")
    assert "acme-ext: the program's supervisor was killed by SIGKILL." in err


@pytest.mark.slow
def test_a_second_interrupt_ends_everything_at_once(tmp_path, train):
    program = train(tmp_path / "run", _FOR_EVER, "--open-ports", LAB_WALK_SERVER="", LAB_WALK_HANGS_AT="100")
    program.wait_for(lambda: program.hanging() == 2)
    assert program.listening()
    check_second_interrupt(program)


@pytest.mark.slow
def test_a_sigterm_to_everybody_is_a_request_to_stop_and_who_hangs_does_not_hold_it_up(tmp_path, train):
    """`timeout` and service managers signal every process of a command."""
    run = tmp_path / "run"
    program = train(run, _FOR_EVER, "--actors", "1", LAB_WALK_HANGS_AT="300", LAB_WALK_SERVER="")
    program.wait_for(lambda: bool(rows(run, "learner")) and program.hanging() == 1)
    os.killpg(program.process.pid, signal.SIGTERM)
    code, out, err = program.end()
    assert code == 128 + signal.SIGTERM
    assert "killed by" not in err
    assert f"stopped at step {saved(run)[-1]:,}" in out
    assert 100 <= saved(run)[-1] <= 300


def test_an_interrupt_before_anything_runs_is_no_failure(tmp_path, train):
    program = train(tmp_path / "run", _FOR_EVER)
    program.wait_for(lambda: any("acme_ext.launch.hosts.subreaper" in p.cmdline() for p in program.processes()))
    program.interrupt()
    code, out, err = program.end()
    assert code == 128 + signal.SIGINT
    # The keeper is started while the command still imports its own libraries.
    own = "acme-ext: stopped; nothing is lost, and the same command starts again."
    assert ("stopped at step 0" in out) != (own in err)
    assert err.splitlines()[1:] in ([], [own], [f"acme-ext: the run directory is {tmp_path / 'run'}"])
