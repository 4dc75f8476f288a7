"""Programs that record what they do, each node for itself."""

import pytest
from programs import FIELDS, rows

from acme_ext.builders import DQN
from acme_ext.commands.record import describe
from acme_ext.data.format import Folder
from acme_ext.launch.runners import distributed
from acme_ext.launch.runners.program import Topology
from acme_ext.launch.runs import settings
from acme_ext.launch.runs.experiment import Evaluation, Experiment

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "writers"),
    [
        (Topology(actors=2), {"actor-0", "actor-1"}),
        (Topology(actors=2, inference="server"), {"actor-0", "actor-1"}),
        (Topology(2, inference="server", experience="server", inference_servers=2), {"inference-0", "inference-1"}),
    ],
)
def test_all_whole_episodes_are_recorded_by_who_writes_the_experience(tmp_path, topology, writers):
    def run(steps):
        described = Experiment(
            DQN(settings.replace(DQN().config, {name: str(value) for name, value in FIELDS.items()})),
            "gym:lab_walk:LabWalk-v0",
            steps=steps,
            num_envs=2,
            evaluation=Evaluation(every=0, final_episodes=2),
            run_dir=str(tmp_path / "run"),
        )
        return distributed.run_program(described, topology, on="threads", quiet=True, record=tmp_path / "data")

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
    assert describe(folder)[2].endswith(f"{len(folder.shards)} shards; all good")


@pytest.mark.slow
def test_a_killed_actor_loses_its_open_shard_alone(tmp_path, train):
    run, data = tmp_path / "run", tmp_path / "data"
    program = train(run, 1_500, "--record", str(data), "--restart", "1")
    program.wait_for(lambda: program.steps() > 300)
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
