"""Runs that learn from demonstrations beside their own experience."""

import dataclasses
import json
import shutil
from typing import Any

import numpy as np
import pytest
from toys import make_walk, toy

from acme_ext import builders, envs, launch
from acme_ext.acting.actor import Actor
from acme_ext.acting.inference import LocalInference
from acme_ext.acting.loop import EnvironmentLoop
from acme_ext.acting.variables import VariableClient
from acme_ext.commands import cli
from acme_ext.commands.record import random_policy
from acme_ext.data.format import Folder, FolderWriter
from acme_ext.data.recorder import Recorder
from acme_ext.errors import UsageError
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.schedule import Evaluation
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.learning.learner import Learner
from acme_ext.replay.config import SequenceConfig, TransitionConfig
from acme_ext.replay.fixed import FixedRows
from acme_ext.utils import loggers

pytestmark = pytest.mark.usefixtures("no_figures")

DISCRETE, CONTINUOUS = "gym:CartPole-v1", "gym:Pendulum-v1"
SMALL = {
    "batch_size": 16,
    "hidden_sizes": (8,),
    "sgd_steps_per_call": 2,
    "core_size": 8,
    "random_steps": 20,
    "pretrain_steps": 10,
}
REPLAYS: dict[type, dict[str, Any]] = {
    TransitionConfig: {"min_size": 40, "samples_per_insert": 8.0},
    SequenceConfig: {"min_size": 4, "max_size": 400, "burn_in": 2, "length": 6, "period": 3, "samples_per_insert": 4.0},
}
AGENTS = {
    "r2d3": DISCRETE,
    "dqfd": DISCRETE,
    "sqil": CONTINUOUS,
    "discrete_sqil": DISCRETE,
    "sac": CONTINUOUS,
    "discrete_sac": DISCRETE,
}


def agents(slow, quick=()):
    """The agents with their environments: but for those in `quick` marked slow, or release where not in `slow`."""
    marks = {
        name: () if name in quick else pytest.mark.slow if name in slow else pytest.mark.release for name in AGENTS
    }
    return [pytest.param(name, environment, marks=marks[name]) for name, environment in AGENTS.items()]


def small(name: str, **replay: Any) -> builders.Builder:
    builder = builders.load(name)()
    fields = {field.name for field in dataclasses.fields(builder.config)}
    settings = {**REPLAYS[type(builder.config.replay)], "demo_ratio": 0.25, **replay}
    changed = {k: v for k, v in SMALL.items() if k in fields}
    own = dataclasses.replace(builder.config.replay, **settings)
    return dataclasses.replace(builder, config=dataclasses.replace(builder.config, replay=own, **changed))


def experiment(folder, builder, environment, **fields) -> Experiment:
    short = Evaluation(every=0, final_episodes=1, num_envs=1)
    return Experiment(builder, environment, run_dir=str(folder), evaluation=short, **fields)


class Nothing:
    """The variables of a policy that has none."""

    def get_variables(self, names):
        return [()]


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    """Folders of random episodes, by environment."""
    import jax

    folders = {}
    for name in (DISCRETE, CONTINUOUS):
        folder = folders[name] = str(tmp_path_factory.mktemp("demos") / "random")
        environment = envs.canonical_actions(envs.make(name, num_envs=2))
        spec = envs.make_spec(environment)
        about = {"environment": name, "environment_options": {}, "agent": "none", "config": {}, "seed": 0}
        recorder = Recorder(FolderWriter(folder, spec, about))
        inference = LocalInference(random_policy(spec), VariableClient(Nothing()), jax.random.key(0), 2)
        loop = EnvironmentLoop(environment, Actor(inference, num_envs=2, writer=recorder), should_update=False)
        for _ in range(220):
            loop.step()
        recorder.close()
        environment.close()
    return folders


def drawn(folder) -> np.ndarray:
    """The items that a run has learned from in all: its own, and demonstrations."""
    log = loggers.read_csv(folder / "logs/learner.csv")
    return np.array([log["samples_own"][-1], log["samples_demos"][-1]])


@pytest.mark.parametrize(("name", "environment"), agents(slow={"sqil"}, quick={"dqfd"}))
def test_agents_learn_from_demonstrations_and_go_on(name, environment, demos, tmp_path):
    described = experiment(tmp_path, small(name), environment, demos=demos[environment], steps=300, num_envs=2)
    first = launch.run(described, quiet=True)
    before = drawn(tmp_path)
    assert before.sum() == first.learner_steps * described.builder.config.batch_size  # one count of all that is learned
    assert json.loads((tmp_path / "config.json").read_text())["demos"]["sha256"] == Folder(demos[environment]).digest
    second = launch.run(dataclasses.replace(described, steps=450), quiet=True)
    after = drawn(tmp_path)
    assert np.isfinite(second.score.returns).all()
    assert after.sum() == second.learner_steps * described.builder.config.batch_size
    assert (after > before).all()
    pretrained = getattr(described.builder.config, "pretrain_steps", 0) * described.builder.config.batch_size
    mixed = after - [0, pretrained]
    assert abs(mixed[1] / mixed.sum() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / mixed.sum())


@pytest.mark.parametrize(("name", "environment"), agents(slow={"r2d3"}))
def test_programs_learn_from_demonstrations_and_go_on(name, environment, demos, tmp_path):
    described = experiment(tmp_path, small(name), environment, demos=demos[environment], steps=300)
    topology = launch.Threads(actors=2, replay_shards=2)
    first = launch.run(described, topology, quiet=True)
    saved = CheckpointStore(tmp_path / "checkpoints").restore({}).info["state"]
    batch = described.builder.config.batch_size
    assert sum(saved["demos"]["drawn"].values()) == first.learner_steps * batch
    second = launch.run(dataclasses.replace(described, steps=600), topology, quiet=True)
    assert second.learner_steps > first.learner_steps
    saved = CheckpointStore(tmp_path / "checkpoints").restore({}).info["state"]
    assert sum(saved["demos"]["drawn"].values()) == second.learner_steps * batch
    assert min(saved["demos"]["drawn"].values()) > 0


@pytest.mark.release
def test_without_a_share_of_demonstrations_nothing_is_drawn_of_them(demos, tmp_path):
    builder = small("r2d3", demo_ratio=0.0)
    for name, given in (("with", demos[DISCRETE]), ("without", None)):
        result = launch.run(experiment(tmp_path / name, builder, DISCRETE, demos=given, steps=100), quiet=True)
        assert result.learner_steps > 0
        assert "samples_demos" not in loggers.read_csv(tmp_path / name / "logs/learner.csv")


@pytest.mark.slow
def test_a_run_with_other_demonstrations_is_another(demos, tmp_path):
    described = experiment(tmp_path / "run", small("r2d3"), DISCRETE, demos=demos[DISCRETE], steps=60)
    launch.run(described, quiet=True)
    with pytest.raises(UsageError, match=r"holds another run: demos\.best is 1\.0 there and 0\.5 here"):
        launch.run(dataclasses.replace(described, demos=f"{demos[DISCRETE]}?best=0.5"), quiet=True)


@pytest.mark.slow
def test_what_cannot_be_learned_from_is_refused(demos, tmp_path):
    def refused(said, builder, environment=DISCRETE, **fields):
        described = experiment(tmp_path / "run", builder, environment, **fields)
        with pytest.raises(UsageError, match=said):
            launch.run(described, quiet=True)
        with pytest.raises(UsageError, match=said):
            launch.run(described, launch.Threads(actors=1), quiet=True)
        assert not (tmp_path / "run").exists()

    refused("r2d3 learns from demonstrations: give it some", small("r2d3"))
    refused("is not recorded data", small("r2d3"), demos=str(tmp_path))
    refused("the observations of .* don't match the environment's", small("r2d3"), demos=demos[CONTINUOUS])
    refused("one discrete action", small("r2d3"), CONTINUOUS, demos=demos[CONTINUOUS])
    refused("its own newest data", builders.PPO(), demos=demos[DISCRETE])
    retrace = dataclasses.replace(small("r2d3").config, retrace_lambda=0.9)
    refused("values that its policy computed", builders.R2D3(retrace), demos=demos[DISCRETE])
    refused("best=SHARE", small("r2d3"), demos=f"{demos[DISCRETE]}?best=2")
    damaged = tmp_path / "damaged"
    shutil.copytree(demos[DISCRETE], damaged)
    (damaged / "000000.npz").write_bytes(b"nothing")
    refused("SHA-256 differs", small("r2d3"), demos=str(damaged))
    described = experiment(tmp_path / "run", small("r2d3"), DISCRETE, demos=str(damaged))
    with pytest.raises(UsageError, match=r"all shards of .* are damaged"):
        launch.run(described, quiet=True, skip_damaged=True)
    with pytest.raises(UsageError, match=r"demo_ratio is 1\.5: it must lie in \[0, 1\]"):
        small("r2d3", demo_ratio=1.5)
    with pytest.raises(UsageError, match="use demonstrations too: give only one"):
        experiment(tmp_path, small("r2d3"), DISCRETE, data=demos[DISCRETE], demos=demos[DISCRETE])
    compiled = experiment(tmp_path / "run", small("r2d3"), "jax:CartPole-v1", demos=demos[DISCRETE])
    with pytest.raises(UsageError, match="compiled runs can't mix demonstrations into their replay"):
        launch.run(compiled, launch.Compiled())


def test_from_the_shell(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny = ["--eval-every", "0", "--eval-episodes", "1", "--quiet"]
    tiny += [word for pair in ("hidden_sizes=8", "replay.min_size=20") for word in ("--set", pair)]
    online = ["train", "dqn", "py:toys:make_walk", "--set", "batch_size=8", "--run-dir", "online", "--steps", "60"]
    assert cli.main([*online, *tiny]) == 0
    assert cli.main(["record", "online", "-o", "walks", "--steps", "30"]) == 0
    command = ["train", "dqn", "py:toys:make_walk", "--demos", "walks", "--set", "batch_size=8", "--steps", "60"]
    assert cli.main([*command, *tiny, "--set", "replay.demo_ratio=0.5"]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert "demos-walks" in run.name
    own, demos = drawn(run)
    assert 0.2 < demos / (own + demos) < 0.8
    capfd.readouterr()
    assert cli.main([*command, *tiny, "--set", "replay.demo_ratio=2"]) == 2
    assert "demo_ratio is 2.0: it must lie in [0, 1]" in capfd.readouterr().err
    assert cli.main([*command, *tiny, "--set", "demo_ratio=0.5"]) == 2
    assert "did you mean 'replay.demo_ratio'" in capfd.readouterr().err


def test_any_builder_of_ones_own_takes_demonstrations(tmp_path):
    record = tmp_path / "walks"
    launch.run(experiment(tmp_path / "first", toy(), make_walk, steps=60), quiet=True, record=str(record))
    result = launch.run(experiment(tmp_path / "run", toy(), make_walk, demos=str(record), steps=60), quiet=True)
    assert result.learner_steps > 0
    assert drawn(tmp_path / "run").min() > 0
    assert launch.Experiment(toy(), make_walk, demos=str(record)).directory.name.endswith("demos-walks-s0")


def test_dqfd_learns_from_demonstrations_before_it_acts_and_gives_them_priorities(demos, tmp_path, monkeypatch):
    done, offsets, init = [], [], FixedRows.__init__

    def noting(cls, name):
        method = getattr(cls, name)

        def noted(self, *given):
            done.append(cls)
            return method(self, *given)

        monkeypatch.setattr(cls, name, noted)

    def made(self, *given, offset=0.0, **fields):
        offsets.append(offset)
        init(self, *given, offset=offset, **fields)

    for cls, name in ((EnvironmentLoop, "step"), (Learner, "step"), (FixedRows, "update")):
        noting(cls, name)
    monkeypatch.setattr(FixedRows, "__init__", made)
    builder = small("dqfd")
    launch.run(experiment(tmp_path, builder, DISCRETE, demos=demos[DISCRETE], steps=100, num_envs=2), quiet=True)
    c = builder.config
    assert done[: done.index(EnvironmentLoop)].count(Learner) == c.pretrain_steps / c.sgd_steps_per_call
    assert FixedRows in done
    assert offsets == [c.demo_priority_offset] != [c.replay.priority_offset]
