"""Nodes of one's own in a program: they use its parts, are ended with it, and can end it."""

import importlib.util
import pathlib
import signal

import launchpad as lp
import programs
import pytest

from acme_ext import launch
from acme_ext.builders import DQN
from acme_ext.config.assignments import replace_fields
from acme_ext.errors import RunError, UsageError
from acme_ext.launch.engines.program.program import added_groups
from acme_ext.launch.roles import SERVERS
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.schedule import Checkpoints, Evaluation

_FOR_EVER = 10**7


class Watcher:
    """Asks the program's parts for what they have, and ends the program."""

    def __init__(self, file, stop, learner, coordinator, replays):
        self._file, self._stop = pathlib.Path(file), stop or coordinator.request_stop
        self._learner, self._coordinator, self._replays = learner, coordinator, replays

    def run(self):
        while self._coordinator.snapshot()["counts"]["environment_steps"] < 200:
            lp.wait_for_stop(0.05)
        (params,) = self._learner.get_variables(["policy"])
        filled = [table.counts().size > 0 for table in self._replays]
        self._stop()
        lp.wait_for_stop()
        self._file.write_text(f"{len(params)} layers, {filled}; it ended")


class Broken:
    def run(self):
        raise ArithmeticError("the watcher fell asleep")


def _stop_by_stopper():
    lp.make_program_stopper("local_mp")()


def _stop_by_lp():
    lp.stop()


def _experiment(tmp_path, steps):
    texts = {name: str(value) for name, value in programs.FIELDS.items()}
    return Experiment(
        DQN(replace_fields(DQN().config, texts)),
        "gym:lab_walk:LabWalk-v0",
        steps=steps,
        evaluation=Evaluation(every=0, final_episodes=1),
        checkpoints=Checkpoints(every_s=0),
        run_dir=str(tmp_path / "run"),
    )


_NO_RAY = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `ray`")


@pytest.mark.parametrize(
    ("on", "stop"),
    [
        (launch.Threads, _stop_by_stopper),
        (launch.Threads, None),
        pytest.param(launch.Threads, _stop_by_lp, marks=pytest.mark.slow),
        pytest.param(launch.Processes, _stop_by_stopper, marks=pytest.mark.slow),
        pytest.param(launch.Ray, _stop_by_lp, marks=[pytest.mark.release, pytest.mark.timeout(900), _NO_RAY]),
    ],
)
def test_a_node_of_ones_own_uses_the_parts_and_ends_the_program_after_a_last_save(on, stop, tmp_path):
    file = tmp_path / "watched"

    def extend(program, handles):
        with program.group("watcher"):
            node = lp.PyClassNode(Watcher, str(file), stop, handles.learner, handles.coordinator, handles.replays)
            program.add_node(node)

    described = _experiment(tmp_path, _FOR_EVER)
    result = launch.run(described, on(actors=1, extend=extend), quiet=True)
    assert result.stopped_by == signal.SIGTERM
    assert programs.saved(tmp_path / "run") == [result.environment_steps]
    assert result.environment_steps >= 200
    assert file.read_text() == "2 layers, [True]; it ended"


@pytest.mark.release
def test_a_node_of_ones_own_that_raises_ends_the_program_with_its_name(tmp_path, capfd):
    def extend(program, handles):
        program.add_node(lp.PyClassNode(Broken), label="watcher")

    with pytest.raises(RunError, match="the program failed"):
        launch.run(_experiment(tmp_path, _FOR_EVER), launch.Processes(actors=1, extend=extend), quiet=True)
    err = capfd.readouterr().err
    assert "acme-ext: watcher failed with exit code 1:\nTraceback" in err
    assert "ArithmeticError: the watcher fell asleep" in err


def test_groups_of_ones_own_are_known_before_anything_is_started():
    def extend(program, handles):
        with program.group("watcher"):
            for replay in handles.replays:
                program.add_node(lp.PyClassNode(Watcher, "", None, handles.learner, handles.coordinator, [replay]))

    assert added_groups(launch.Threads(actors=2, replay_shards=2, extend=extend)) == {"watcher": 2}


@pytest.mark.parametrize("group", [*SERVERS, "actor", "evaluator"])
def test_the_program_s_own_groups_are_refused(group, tmp_path):
    def extend(program, handles):
        program.add_node(lp.PyClassNode(Broken), label=group)

    with pytest.raises(UsageError, match=f"can't be in the group '{group}'"):
        launch.run(_experiment(tmp_path, 10), launch.Threads(extend=extend))
    assert not (tmp_path / "run").exists()
