"""Recording, and runs on what was recorded."""

import dataclasses
import functools
import json
from typing import Any

import jax
import numpy as np
import pytest
from toys import Walk, make_walk

from acme_ext import builders, launch
from acme_ext.commands import cli, train
from acme_ext.data.format import Folder, FolderWriter
from acme_ext.data.recorder import Recorder
from acme_ext.errors import UsageError
from acme_ext.launch.exporting import policy as exported
from acme_ext.launch.runs import directory
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.identity import about
from acme_ext.launch.runs.schedule import Evaluation
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.replay.config import TransitionConfig
from acme_ext.utils import loggers
from acme_ext.utils.rundir import RunDirectory

pytestmark = pytest.mark.usefixtures("no_figures")

DISCRETE, CONTINUOUS = ("bc", "discrete_cql", "bcq", "dqn", "discrete_sac"), ("bc", "td3_bc", "iql", "cql", "crr")
SMALL = {"batch_size": 8, "hidden_sizes": (8,), "sgd_steps_per_call": 2, "penalty_samples": 2}


def small(name: str, **replay: Any) -> builders.Builder:
    builder = builders.load(name)()
    fields = {field.name for field in dataclasses.fields(builder.config)}
    changed = {k: v for k, v in SMALL.items() if k in fields}
    config = dataclasses.replace(builder.config, replay=TransitionConfig(min_size=20, **replay), **changed)
    return dataclasses.replace(builder, config=config)


def experiment(folder, builder, environment, **fields):
    short = Evaluation(every=0, final_episodes=1, num_envs=1)
    return Experiment(builder, environment, run_dir=str(folder), evaluation=short, **fields)


@pytest.fixture(scope="module", params=["gym:CartPole-v1", pytest.param("gym:Pendulum-v1", marks=pytest.mark.release)])
def recorded(request, tmp_path_factory):
    """A folder of random episodes of an environment, and its name."""
    import acme_ext.envs as envs
    from acme_ext.acting.actor import Actor
    from acme_ext.acting.loop import EnvironmentLoop
    from acme_ext.commands.record import random_policy

    folder = tmp_path_factory.mktemp("data") / "random"
    with pytest.MonkeyPatch.context():
        environment = envs.canonical_actions(envs.make(request.param, num_envs=2))
        spec = envs.make_spec(environment)
        about = {"environment": request.param, "environment_options": {}, "agent": "none", "config": {}, "seed": 0}
        recorder = Recorder(FolderWriter(folder, spec, about))

        from acme_ext.acting.inference import LocalInference
        from acme_ext.acting.variables import VariableClient

        class Nothing:
            def get_variables(self, names):
                return [()]

        inference = LocalInference(random_policy(spec), VariableClient(Nothing()), jax.random.key(0), 2)
        loop = EnvironmentLoop(environment, Actor(inference, num_envs=2, writer=recorder), should_update=False)
        for _ in range(220):
            loop.step()
        recorder.close()
        environment.close()
    return folder, request.param


def test_agents_learn_from_recorded_data(recorded, tmp_path):
    folder, environment = recorded
    for name in DISCRETE if "CartPole" in environment else CONTINUOUS:
        result = launch.run(
            experiment(tmp_path / name, small(name), environment, data=str(folder), steps=6), quiet=True
        )
        assert (result.environment_steps, result.learner_steps) == (0, 6)
        assert np.isfinite(result.score.returns).all()
        assert json.loads((tmp_path / name / "config.json").read_text())["data"]["sha256"] == Folder(folder).digest


def test_a_run_on_recorded_data_leaves_snapshots(recorded, tmp_path):
    folder, environment = recorded
    run = experiment(tmp_path / "run", small("bc"), environment, data=str(folder), steps=6)
    launch.run(run, quiet=True, snapshot_every=3)
    early, late = (exported.load(path) for path in sorted((tmp_path / "run" / "snapshots").iterdir()))
    assert (early.about["steps"], late.about["steps"]) == (4, 6)  # in calls of two steps
    trained = launch.load(tmp_path / "run")
    observation = np.ones(trained.loaded.spec.observations.shape, np.float32)
    np.testing.assert_allclose(late.step(observation)[0], trained.policy(observation), rtol=1e-5)


def test_a_run_on_recorded_data_that_is_refused_late_keeps_its_directory(recorded, tmp_path):
    folder, environment = recorded
    run = experiment(tmp_path, small("bc"), environment, data=str(folder))
    directory.prepare(run)
    (tmp_path / "best").mkdir()
    with pytest.raises(UsageError, match="num_devices is 99"):
        launch.run(dataclasses.replace(run, num_devices=99), fresh=True, quiet=True)
    assert (tmp_path / "best").exists()


def test_evaluations_may_become_more_frequent(recorded, tmp_path):
    folder, environment = recorded
    run = experiment(tmp_path, small("bc"), environment, data=str(folder))
    for steps, every in ((6, 1000), (16, 4)):
        evaluation = dataclasses.replace(run.evaluation, every=every, episodes=1)
        launch.run(dataclasses.replace(run, steps=steps, evaluation=evaluation), quiet=True)
    evaluated = loggers.read_csv(tmp_path / "logs/evaluator.csv")["learner_steps"]
    assert evaluated.tolist() == [6, 8, 12, 16]


def parameters(folder):
    builder = small("dqn")
    spec = Folder(folder.parent / "data").spec
    template = builder.make_agent(spec).core.abstract_state()
    restored = CheckpointStore(RunDirectory.open(folder).checkpoints).restore({"learner": template})
    assert restored is not None
    return restored.trees["learner"]


def test_a_folder_that_can_not_be_recorded_to_is_refused_before_a_run_begins(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(UsageError, match="neither empty nor recorded data"):
        launch.run(experiment(tmp_path / "run", small("dqn"), make_walk, steps=100), quiet=True, record=tmp_path)
    assert not (tmp_path / "run").exists()


def test_a_folder_in_the_run_directory_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "run")
    one, told = experiment(tmp_path / "run", small("dqn"), make_walk, steps=100), "record to a folder outside it"
    for record in (tmp_path / "run", tmp_path / "link/episodes"):
        with pytest.raises(UsageError, match=told):
            launch.run(one, quiet=True, record=record)
        with pytest.raises(UsageError, match=told):
            launch.run(one, launch.Threads(1), quiet=True, record=record)
    assert not (tmp_path / "run").exists()


def test_a_run_records_what_it_does_and_learning_from_it_repeats(tmp_path):
    """Stopped in the middle and resumed, a run on fixed data ends with the same parameters."""
    data = tmp_path / "data"
    launch.run(experiment(tmp_path / "online", small("dqn"), make_walk, steps=100), quiet=True, record=str(data))
    folder = Folder(data)
    assert folder.manifest["environment"] == "py:toys:make_walk"
    assert folder.steps == 100  # ten whole episodes
    episode = next(folder.episodes())
    assert episode.steps == 10
    np.testing.assert_array_equal(episode.observation.argmax(axis=1), np.arange(11))
    walk = Walk(0)
    whole = experiment(tmp_path / "whole", small("dqn"), make_walk, data=str(data), steps=8)
    launch.run(whole, quiet=True)
    for steps in (4, 8):
        part = experiment(tmp_path / "parts", small("dqn"), make_walk, data=str(data), steps=steps)
        result = launch.run(part, quiet=True)
        assert result.learner_steps == steps
    assert walk.taken == 0
    jax.tree.map(
        np.testing.assert_array_equal,
        *(jax.tree.map(np.asarray, parameters(tmp_path / name)[0].core.params) for name in ("whole", "parts")),
    )
    other = experiment(tmp_path / "parts", small("dqn"), make_walk, data=f"{data}?best=0.5", steps=8)
    with pytest.raises(UsageError, match=r"holds another run: data\.best is 1\.0 there and 0\.5 here"):
        launch.run(other, quiet=True)


def test_what_cannot_be_learned_from_is_refused(recorded, tmp_path):
    folder, environment = recorded
    data = str(folder)
    for fields, said in (
        ({"data": str(tmp_path)}, "is not recorded data"),
        ({"data": f"{data}?best=2"}, "best=SHARE"),
        ({"data": data, "environment": "gym:Acrobot-v1"}, "don't match the environment's"),
    ):
        with pytest.raises(UsageError, match=said):
            launch.run(experiment(tmp_path / "run", small("bc"), **{"environment": environment, **fields}), quiet=True)
    name = "dqn" if "CartPole" in environment else "td3"
    with pytest.raises(UsageError, match="prioritized"):
        launch.run(experiment(tmp_path / "run", small(name, prioritized=True), environment, data=data), quiet=True)
    assert not (tmp_path / "run").exists()


def test_data_of_an_environment_that_is_no_plain_name_is_learned_from(tmp_path):
    recorded = experiment(tmp_path / "online", small("dqn"), functools.partial(make_walk))
    FolderWriter(tmp_path / "data", recorded.make_spec(), about(recorded)).begin()
    made = train.experiment_from(train.parse("bc", f"data:{tmp_path / 'data'}"))
    assert made.make_spec() == recorded.make_spec()
    assert made.describe()["environment"] == recorded.describe()["environment"]


def test_what_needs_an_actor_is_refused(recorded, tmp_path):
    folder, environment = recorded
    of_data = experiment(tmp_path / "run", small("bc"), environment, data=str(folder))
    with pytest.raises(UsageError, match="does not act"):
        launch.run(of_data, quiet=True, record=tmp_path / "more")
    with pytest.raises(UsageError, match="does not act"):
        launch.run(of_data, launch.InProcess(profile=True), quiet=True)
    with pytest.raises(UsageError, match="has no actors"):
        launch.run(of_data, launch.Threads(actors=1), quiet=True)
    with pytest.raises(UsageError, match="does not act"):
        launch.run(of_data, launch.Threads(actors=0), quiet=True, record=tmp_path / "more")
    with pytest.raises(UsageError, match="this run uses no recorded data"):
        launch.run(experiment(tmp_path / "run", small("bc"), environment), quiet=True, skip_damaged=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.release
def test_from_the_shell(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny = ["--set", "batch_size=8", "--set", "hidden_sizes=8", "--eval-every", "0", "--eval-episodes", "1", "--quiet"]
    online = [
        "train",
        "dqn",
        "py:toys:make_walk",
        "--steps",
        "60",
        "--run-dir",
        "online",
        "--set",
        "replay.min_size=20",
    ]
    assert cli.main([*online, *tiny]) == 0
    assert cli.main(["record", "online", "-o", "data", "--steps", "30", "--num-envs", "2"]) == 0
    assert cli.main(["record", "online", "-o", "data", "--steps", "10", "--policy", "random", "--seed", "5"]) == 0
    assert "episodes, return" in capfd.readouterr().out
    no = ["record", "online", "-o", "none", "--steps", "10", "--set"]
    assert cli.main([*no, "epsilon_end=0", "--policy", "random"]) == 2
    assert "random actions have no settings: leave out epsilon_end" in capfd.readouterr().err
    assert cli.main([*no[:-1], "--best", "--policy", "random"]) == 2
    assert "random actions have no parameters: leave out --best." in capfd.readouterr().err
    assert cli.main([*no, "hidden_sizes=4"]) == 2
    assert "the run's parameters don't fit hidden_sizes=4" in capfd.readouterr().err
    assert cli.main(["data", "data"]) == 0
    said = capfd.readouterr().out
    assert "py:toys:make_walk" in said
    assert "2 shards; all good" in said
    assert cli.main(["train", "bc", "data:data", "--steps", "16", "--run-dir", "bc", *tiny]) == 0
    assert "16 of the learner" in capfd.readouterr().out
    assert cli.main(["evaluate", "bc"]) == 0
    assert cli.main(["train", "ppo", "data:data", "--steps", "16", "--run-dir", "ppo", "--quiet"]) == 2
    assert "can't learn from fixed data" in capfd.readouterr().err
    assert cli.main(["train", "bc", "data:data", "--actors", "2", "--run-dir", "no"]) == 2
    assert "a run on recorded data has no actors: leave out --actors" in capfd.readouterr().err
    assert not (tmp_path / "no").exists()
    assert launch.Experiment(builders.BC(), make_walk, data="data").step_key == "learner_steps"
