"""Programs where neither Launchpad nor Acme is installed: some of the tests of programs, run once more."""

import importlib.util
import os
import pathlib
import signal
import sys

import pytest
import test_failures
import test_inference_programs
import test_life_cycle
import test_ray_life_cycle
from programs import rows, saved

_HIDING = pathlib.Path(__file__).parent / "without_launchpad"
_FOR_EVER = 10**7


@pytest.fixture
def launch(launch):
    path = os.pathsep.join([str(_HIDING), *filter(None, sys.path)])
    return lambda line, run, **variables: launch(line, run, PYTHONPATH=path, **variables)


def _again(test, *marks, **named):
    words = [test.__module__[5:], test.__name__[5:40], *map(str, named.values())]
    return pytest.param(test, named, marks=marks, id="-".join(words))


_SLOW, _RELEASE = pytest.mark.slow, pytest.mark.release
_RAY = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `ray`")
_SERVER_DIES = test_failures.test_the_program_is_started_again_after_the_death_of_a_server


@pytest.mark.parametrize(
    ("test", "named"),
    [
        _again(test_failures.test_an_environment_may_compute_with_jax),
        _again(test_failures.test_actors_that_die_are_started_again_and_what_they_did_stays_counted, _SLOW),
        _again(test_failures.test_an_actor_that_is_killed_ends_the_program_after_a_last_save, _RELEASE, number=9),
        *(_again(_SERVER_DIES, _RELEASE, name=name) for name in ("replay", "learner", "coordinator")),
        _again(
            test_life_cycle.test_a_killed_launcher_takes_all_along_and_the_command_goes_on_to_its_end,
            _RELEASE,
        ),
        _again(
            test_life_cycle.test_a_sigterm_to_everybody_is_a_request_to_stop_and_who_hangs_does_not_hold_it_up, _SLOW
        ),
        _again(
            test_inference_programs.test_an_inference_server_that_dies_comes_back_and_the_actors_go_on,
            _RELEASE,
            names=["inference-0", "inference-1"],
        ),
        _again(
            test_ray_life_cycle.test_a_killed_launcher_takes_all_along_and_the_command_goes_on_to_its_end,
            *(_RELEASE, _RAY, pytest.mark.timeout(900)),
        ),
    ],
)
def test_a_program_behaves_as_with_launchpad(test, named, tmp_path, train):
    test(**({"number": signal.Signals(9)} if "number" in named else named), tmp_path=tmp_path, train=train)


@pytest.mark.slow
def test_a_program_on_threads_is_interrupted_and_goes_on(tmp_path, train):
    run = tmp_path / "run"
    program = train(run, _FOR_EVER, "--on", "threads", "--inference", "server", "--experience", "server")
    program.wait_for(lambda: bool(rows(run, "learner")) and program.steps() > 300)
    program.interrupt()
    code, _, err = program.end()
    assert code == 128 + signal.SIGINT, err
    (last,) = saved(run)
    code, _, err = train(run, last + 300, "--on", "threads").end()
    assert code == 0, err
    assert f"resuming {run} at step {last:,}." in err
    assert saved(run)[-1] >= last + 300


_EXTENDED = """
import pathlib, sys

from acme_ext import launch
from acme_ext.builders import DQN
from acme_ext.launch.hosts import launchpad as lp

FOLDER = pathlib.Path(sys.argv[1])


class Watcher:
    def __init__(self, folder, learner, coordinator):
        self._folder, self._learner, self._coordinator = folder, learner, coordinator

    def run(self):
        while self._coordinator.snapshot()["counts"]["environment_steps"] < 200:
            lp.wait_for_stop(0.05)
        (params,) = self._learner.get_variables(["policy"])
        {stop}
        lp.wait_for_stop()
        (self._folder / "watched").write_text(f"{{len(params)}} layers; it ended")


def extend(program, handles):
    with program.group("watcher"):
        arguments = {{"learner": handles.learner, "coordinator": handles.coordinator}}
        program.add_node(lp.PyClassNode(Watcher, FOLDER, **arguments))


if __name__ == "__main__":
    assert not lp.INSTALLED
    experiment = launch.Experiment(DQN(), "gym:CartPole-v1", run_dir=FOLDER / "run")
    result = launch.run(experiment, launch.{on}(actors=1, extend=extend), quiet=True)
    print(result.stopped_by, result.environment_steps >= 200)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on", "stop"),
    [
        ("Processes", "lp.stop()"),
        pytest.param("Processes", "lp.make_program_stopper('local_mp')()", marks=pytest.mark.release),
        pytest.param("Processes", "self._coordinator.request_stop()", marks=pytest.mark.release),
        pytest.param("Threads", "lp.make_program_stopper('local_mt')()", marks=pytest.mark.release),
        pytest.param("Ray", "lp.stop()", marks=[_RELEASE, _RAY, pytest.mark.timeout(900)]),
    ],
)
def test_a_node_of_ones_own_uses_the_parts_and_ends_the_program(on, stop, tmp_path, launch):
    script = tmp_path / "script.py"
    script.write_text(_EXTENDED.format(on=on, stop=stop))
    code, out, err = launch([str(script), str(tmp_path)], tmp_path / "run").end()
    assert code == 0, err
    assert out.splitlines()[-1] == "15 True"
    assert (tmp_path / "watched").read_text() == "2 layers; it ended"


def test_flags_of_launchpads_are_refused(tmp_path, launch):
    command = ["-m", "acme_ext", "train", "dqn", "gym:CartPole-v1", "--actors", "1", "--run-dir", str(tmp_path / "run")]
    code, _, err = launch([*command, "--", "--lp_termination_notice_secs=3"], tmp_path / "run").end()
    assert code == 2
    assert "--lp_termination_notice_secs=3 is a flag of Launchpad, which is not installed here: leave it out." in err
    assert not (tmp_path / "run").exists()
