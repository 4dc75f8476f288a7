"""Programs of processes whose nodes fail: what is said, what is lost, what goes on."""

import re
import signal
from pathlib import Path

import pytest
from programs import check_a_last_save_that_fails, check_finished, rows, saved, state

_FOR_EVER = 10**7
_SERVERS = ["replay", *(pytest.param(name, marks=pytest.mark.release) for name in ("learner", "coordinator"))]


@pytest.mark.slow
def test_an_environment_that_raises_ends_the_program_with_its_traceback(tmp_path, train):
    run = tmp_path / "run"
    code, out, err = train(run, _FOR_EVER, LAB_WALK_RAISES_AT="300").end()
    assert (code, out) == (1, "")
    assert re.search(r"acme-ext: actor-[01] failed with exit code 1:\nTraceback", err)
    assert "lab_walk.py" in err
    assert "ArithmeticError: the arm fell off\n" in err
    # What was learned is saved.
    counted, inserted, learned = state(run)
    assert counted == saved(run)[-1] > 0
    assert abs(inserted - counted) < 250  # as below
    assert learned > 0


@pytest.mark.slow
def test_an_environment_that_ends_its_process_is_not_taken_for_an_actor_that_has_finished(tmp_path, train):
    code, _, err = train(tmp_path / "run", _FOR_EVER, LAB_WALK_EXITS_AT="300").end()
    assert code == 1
    assert re.search(r"acme-ext: actor-[01] ended its process with exit code 0, as a library's exit\(\) does", err)
    assert saved(tmp_path / "run")[-1] > 0


def test_an_environment_may_compute_with_jax(tmp_path, train):
    code, _, err = train(tmp_path / "run", 300, LAB_WALK_JAX="1").end()
    assert code == 0, err
    assert state(tmp_path / "run")[2] > 0


@pytest.mark.slow
def test_a_program_with_too_few_devices_is_refused_and_keeps_the_run_that_was_there(tmp_path, train):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    config = '{"agent": "dqn", "environment": "gym:lab_walk:LabWalk-v0", "environment_options": {}, "run": {}}'
    (run / "config.json").write_text(config)
    code, out, err = train(run, 300, "--devices", "99", "--fresh").end()
    assert (code, out) == (2, "")
    assert "acme-ext: num_devices is 99, and JAX sees 1 here.\n" in err
    assert (run / "config.json").read_text() == config
    assert (run / "checkpoints").is_dir()


@pytest.mark.release
def test_an_environment_that_can_not_be_made_ends_the_program_with_its_traceback(tmp_path, train):
    code, out, err = train(tmp_path / "run", 300, LAB_WALK_RAISES_AT="0").end()
    assert (code, out) == (1, "")
    assert "ArithmeticError: there is no arm\n" in err
    words = "acme-ext: the process that was to make an environment and see what it is like failed with exit code 1.\n"
    assert words in err


_EAGER = """
import sys

import jax.numpy as jnp

from acme_ext import launch
from acme_ext.builders import DQN
from acme_ext.launch.placement import Processes
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runner import run


class Eager(DQN):
    def make_replay(self, spec, networks):
        jnp.zeros(1)
        return super().make_replay(spec, networks)


if __name__ == "__main__":
    run(Experiment(Eager(), "gym:CartPole-v1", steps=10, run_dir=sys.argv[1]), Processes(actors=1))
"""


@pytest.mark.release
def test_a_builder_that_starts_jax_before_the_processes_are_forked_is_refused(tmp_path, launch):
    script, run = tmp_path / "script.py", tmp_path / "run"
    script.write_text(_EAGER)
    code, _, err = launch([str(script), str(run)], run).end()
    assert code == 1
    assert "acme-ext: JAX has computed something where the program's nodes are described, before they" in err
    assert "acme_ext.errors.UsageError: the program did not start.\n" in err


@pytest.mark.slow
def test_actors_that_die_are_started_again_and_what_they_did_stays_counted(tmp_path, train):
    run = tmp_path / "run"
    program = train(run, 2_000, "--restart", "3")
    program.wait_for(lambda: program.steps() > 300)
    program.node("actor-0").kill()
    program.node("evaluator").kill()
    program.wait_for(lambda: program.steps() > 600)
    program.node("actor-1").terminate()
    code, _, err = program.end()
    assert code == 0, err
    assert "acme-ext: actor-0 was killed by SIGKILL and is started again.\n" in err
    assert "acme-ext: evaluator was killed by SIGKILL and is started again.\n" in err
    assert "acme-ext: actor-1 was killed by SIGTERM and is started again.\n" in err
    assert "acme-ext: restarts of nodes that had died: 3.\n" in err
    counted, inserted, _ = state(run)
    assert counted == saved(run)[-1]
    assert 2_000 <= counted <= 2_040
    # Of a dead one, what it had done since its last report isn't counted, and what it hadn't sent isn't inserted.
    assert abs(inserted - counted) < 500
    logged = rows(run, "actor")
    assert logged == sorted(logged)
    assert set(rows(run, "actor", "actor")) == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.release)])
def test_an_actor_that_is_killed_ends_the_program_after_a_last_save(number, tmp_path, train):
    run = tmp_path / "run"
    program = train(run, _FOR_EVER, "--checkpoint-every", "1000")
    program.wait_for(lambda: bool(rows(run, "learner")) and program.steps() > 300)
    seen = program.steps()
    program.node("actor-1").send_signal(number)
    code, out, err = program.end()
    assert (code, out) == (1, "")
    assert f"acme-ext: actor-1 was killed by {number.name}" in err
    # Nothing that anybody was told of is lost.
    counted, inserted, learned = state(run)
    assert counted == saved(run)[-1] >= seen
    assert abs(inserted - counted) < 500
    assert learned > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", _SERVERS)
def test_the_program_is_started_again_after_the_death_of_a_server(name, tmp_path, train):
    run = tmp_path / "run"
    program = train(run, 2_000, "--restart", "1", "--checkpoint-every", "0.5", LAB_WALK_SERVER="")
    program.wait_for(lambda: bool(saved(run)) and program.steps() > saved(run)[-1] + 50)
    killed, others = program.node(name), program.servers()
    killed.kill()
    code, _, err = program.end()
    assert code == 0, err
    assert f"acme-ext: {name} was killed by SIGKILL" in err
    assert "acme-ext: the program is started again from its last checkpoint.\n" in err
    assert "acme-ext: restarts of the whole program: 1.\n" in err
    assert others
    assert not any(process.is_running() for process in others), "what environments had started"
    counted, _, _ = state(run)
    assert counted == saved(run)[-1]
    assert 2_000 <= counted <= 2_040
    logged = rows(run, "actor")
    assert logged == sorted(logged)


@pytest.mark.slow
@pytest.mark.parametrize("name", _SERVERS)
def test_a_server_that_is_killed_is_named_and_the_last_checkpoint_stands(name, tmp_path, train):
    run = tmp_path / "run"
    program = train(run, _FOR_EVER, "--checkpoint-every", "0.5")
    program.wait_for(lambda: bool(saved(run)) and program.steps() > saved(run)[-1] + 50)
    program.node(name).kill()
    code, out, err = program.end()
    assert (code, out) == (1, "")
    assert f"acme-ext: {name} was killed by SIGKILL" in err
    stopped_at, seen = saved(run)[-1], program.steps()
    assert stopped_at < seen
    counted, inserted, learned = state(run)
    assert counted == stopped_at

    program = train(run, _FOR_EVER)
    program.wait_for(lambda: program.steps() > seen)
    program.process.send_signal(signal.SIGTERM)
    code, _, err = program.end()
    assert code == 128 + signal.SIGTERM
    assert f"resuming {run} at step {stopped_at:,}." in err
    counted_then, inserted_then, learned_then = state(run)
    assert counted_then > counted
    assert inserted_then > inserted
    assert learned_then > learned


@pytest.mark.release
def test_a_last_save_that_fails_is_told(tmp_path, train):
    program = train(tmp_path / "run", _FOR_EVER, "--checkpoint-every", "0.5")
    program.wait_for(lambda: bool(saved(tmp_path / "run")))
    check_a_last_save_that_fails(program, program.node("learner"))


@pytest.mark.release
def test_a_proxy_that_a_variable_names_stands_between_no_two_processes(tmp_path, train):
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy"), "http://127.0.0.1:9")
    run = tmp_path / "run"
    code, out, err = train(run, 500, **proxies).end()
    assert code == 0, err
    check_finished(run, out, 500, 40)


@pytest.mark.release
def test_two_interrupts_of_a_program_on_threads_end_it_without_a_traceback(tmp_path, train):
    run = tmp_path / "run"
    program = train(run, _FOR_EVER, "--on", "threads", LAB_WALK_HANGS_AT="300")
    program.wait_for(lambda: program.hanging() == 2)
    program.interrupt()
    program.interrupt_again()
    code, out, err = program.end()
    assert (code, out) == (128 + signal.SIGINT, "")
    assert "Traceback" not in err


@pytest.mark.parametrize("options", [("--on", "threads"), ("--on", "processes")])
def test_an_interrupt_while_libraries_are_imported_is_no_failure(options, tmp_path, train):
    program = train(tmp_path / "run", _FOR_EVER, *options)
    maps = Path(f"/proc/{program.process.pid}/maps")
    program.wait_for(lambda: "numpy" in maps.read_text())
    program.interrupt()
    code, out, err = program.end()
    assert (code, out) == (128 + signal.SIGINT, "")
    assert err.splitlines() == [
        "acme-ext: loading JAX, TensorFlow and Reverb ...",
        "acme-ext: stopped; nothing is lost, and the same command starts again.",
    ]
