"""Programs that record what they do, each node for itself."""

import json

import jax
import numpy as np
import pytest
from programs import FIELDS, rows

from acme_ext import launch
from acme_ext.builders import DQN
from acme_ext.commands.record import describe_recording
from acme_ext.config.assignments import replace_fields
from acme_ext.data.format import Episode, Folder, FolderWriter
from acme_ext.launch.exporting.policy import load
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.schedule import Evaluation
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.utils.rundir import RunDirectory

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on", "writers"),
    [
        *(
            pytest.param(
                launch.Threads(actors=2, inference=place), {"actor-0", "actor-1"}, marks=pytest.mark.release, id=place
            )
            for place in ("actor", "server")
        ),
        (
            launch.Threads(2, inference="server", experience="server", inference_servers=2),
            {"inference-0", "inference-1"},
        ),
    ],
)
def test_all_whole_episodes_are_recorded_by_who_writes_the_experience(tmp_path, on, writers):
    def run(steps):
        described = Experiment(
            DQN(replace_fields(DQN().config, {name: str(value) for name, value in FIELDS.items()})),
            "gym:lab_walk:LabWalk-v0",
            steps=steps,
            num_envs=2,
            evaluation=Evaluation(every=0, final_episodes=2),
            run_dir=str(tmp_path / "run"),
        )
        return launch.run(described, on, quiet=True, record=tmp_path / "data")

    for parts, steps in ((1, 400), (2, 700)):  # the second goes on with the run, and with the folder
        run(steps)
        folder = Folder(tmp_path / "data")
        logged = rows(tmp_path / "run", "actor", "episode_return")
        # Episodes have 10 steps, and a return for each step to the right.
        assert sorted(folder.returns) == sorted(logged)
        assert [episode.score for episode in folder.episodes()] == folder.returns.tolist()
        assert {episode.steps for episode in folder.episodes()} == {10}
        assert folder.steps == 10 * len(logged)
        assert {shard["file"].rpartition("-")[0].rpartition("-")[0] for shard in folder.shards} == writers
        assert len(folder.shards) == parts * len(writers)
    assert describe_recording(folder)[2].endswith(f"{len(folder.shards)} shards; all good")


def of_data(folder, data, steps):
    texts = {name: str(value) for name, value in FIELDS.items()}
    return Experiment(
        DQN(replace_fields(DQN().config, texts)),
        "gym:lab_walk:LabWalk-v0",
        steps=steps,
        data=str(data),
        evaluation=Evaluation(every=50, episodes=1, final_episodes=2),
        run_dir=str(folder),
    )


def parameters(folder, spec):
    builder = DQN(replace_fields(DQN().config, {name: str(value) for name, value in FIELDS.items()}))
    template = builder.make_agent(spec).core.abstract_state()
    restored = CheckpointStore(RunDirectory.open(folder).checkpoints).restore({"learner": template})
    assert restored is not None
    return jax.tree.leaves(restored.trees["learner"][0].core.params)


@pytest.mark.release
def test_a_program_on_recorded_data_learns_what_one_process_does(tmp_path):
    """Also where one begins a run and the other goes on with it, in either order."""
    spec = of_data(tmp_path / "x", "", 1).make_spec()
    about = {"environment": "gym:lab_walk:LabWalk-v0", "environment_options": {}, "agent": "none", "config": {}}
    writer = FolderWriter(tmp_path / "data", spec, about)
    rng = np.random.default_rng(0)
    for _ in range(30):
        kinds = np.array([0, *[1] * 9, 2], np.uint8)
        reward, action = np.r_[0, rng.random(10)].astype(np.float32), rng.integers(0, 2, 11).astype(np.int32)
        writer.add(Episode(rng.random((11, 3), np.float32), action, reward, np.ones(11, np.float32), kinds))
    writer.close()

    def alone(name, steps):
        return launch.run(of_data(tmp_path / name, tmp_path / "data", steps), quiet=True)

    def program(name, steps):
        described = of_data(tmp_path / name, tmp_path / "data", steps)
        return launch.run(described, launch.Threads(evaluators=2), quiet=True, snapshot_every=100)

    alone("whole", 200)
    for name, first, second in (("pp", program, program), ("ap", alone, program), ("pa", program, alone)):
        first(name, 100)
        result = second(name, 200)
        assert (result.environment_steps, result.learner_steps) == (0, 200)
        for here, there in zip(parameters(tmp_path / name, spec), parameters(tmp_path / "whole", spec), strict=True):
            np.testing.assert_array_equal(np.asarray(here), np.asarray(there))
        evaluated = rows(tmp_path / name, "evaluator", "learner_steps")
        assert evaluated == sorted(evaluated)
        assert evaluated[-1] == 200
        assert result.score is not None
        assert len(result.score.returns) == 2
    assert not (tmp_path / "pp/logs/actor.csv").exists()
    assert [int(folder.name) for folder in sorted((tmp_path / "pp/snapshots").iterdir())] == [100, 200]


@pytest.mark.release
def test_the_learner_of_a_program_leaves_snapshots(tmp_path, train):
    run = tmp_path / "run"
    program = train(run, 900, "--snapshot-every", "300")
    code, _, err = program.end()
    assert code == 0, err
    folders = sorted((run / "snapshots").iterdir())
    assert len(folders) == 3
    assert all(int(folder.name) >= least for folder, least in zip(folders, (300, 600, 900), strict=True))
    for folder in folders:
        described = json.loads((folder / "policy.json").read_text())
        assert described["about"]["steps"] <= int(folder.name) + 100
        act = load(folder)
        assert act.step(np.zeros(3, np.float32))[0] in (0, 1)


@pytest.mark.release
def test_a_killed_actor_loses_its_open_shard_alone(tmp_path, train):
    run, data = tmp_path / "run", tmp_path / "data"
    program = train(run, 1_500, "--record", str(data), "--restart", "1")
    program.wait_for(lambda: program.steps() > 300 and rows(run, "actor", "actor").count(1) > 3)
    program.node("actor-1").kill()
    code, _, err = program.end()
    assert code == 0, err
    folder = Folder(data)
    assert sum(episode.steps for episode in folder.episodes()) == folder.steps
    by = [shard["file"].rpartition("-")[0].rpartition("-")[0] for shard in folder.shards]
    assert sorted(by) == ["actor-0", "actor-1"]  # of the second actor, what it did after it was started again
    numbers = rows(run, "actor", "actor")
    steps = {shard["file"][:7]: shard["steps"] for shard in folder.shards}
    assert steps["actor-0"] == 10 * numbers.count(0)
    assert 0 < steps["actor-1"] < 10 * numbers.count(1)
