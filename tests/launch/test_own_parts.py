"""A user's own agents, networks and environments: how a run says which they were, and finds them again."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

import my_agents
import my_envs
import my_networks
import pytest

from acme_ext import builders, launch
from acme_ext.builders import DQN, IMPALA, R2D2, Builder, restore_builder
from acme_ext.commands import cli, train
from acme_ext.errors import UsageError
from acme_ext.launch import Experiment
from acme_ext.replay import TransitionConfig

EXAMPLES = pathlib.Path(my_agents.__file__).parent
CATCH = "bsuite:catch/0"


def other_torso():
    return my_networks.make_torso()


def make_maze(seed, evaluation, size=4):
    return my_envs.make_maze(seed, evaluation, size)


def test_a_run_says_which_functions_it_is_made_of():
    plain, mine, other = (
        Experiment(DQN(torso=torso), CATCH).describe() for torso in (None, my_networks.make_torso, other_torso)
    )
    assert [each["builder"]["torso"] for each in (plain, mine, other)] == [
        None,
        "my_networks:make_torso",
        "test_own_parts:other_torso",
    ]
    here, there = (Experiment(DQN(), factory).describe()["environment"] for factory in (make_maze, my_envs.make_maze))
    assert (here, there) == ("py:test_own_parts:make_maze", "py:my_envs:make_maze")


def test_a_run_with_other_functions_is_not_resumed(tmp_path):
    def run(torso, factory):
        builder = dataclasses.replace(DQN(torso=torso), config=dataclasses.replace(DQN().config, hidden_sizes=(8,)))
        evaluation = launch.Evaluation(every=0, final_episodes=1)
        experiment = Experiment(builder, factory, steps=20, evaluation=evaluation, run_dir=str(tmp_path / "run"))
        return launch.run(experiment, quiet=True)

    run(None, make_maze)
    with pytest.raises(UsageError, match="environment is 'py:test_own_parts:make_maze' there and 'py:my_envs:make_maz"):
        run(None, my_envs.make_maze)
    with pytest.raises(UsageError, match="torso is None there and 'flat' here"):
        run("flat", make_maze)


def test_a_lambda_is_refused_before_anything_is_written_and_named_it_runs(tmp_path):
    for builder, environment in ((DQN(torso=lambda: None), CATCH), (DQN(), lambda seed, evaluation: None)):
        with pytest.raises(UsageError, match=r"launch\.named"):
            Experiment(builder, environment, run_dir=str(tmp_path / "run")).describe()
    assert not (tmp_path / "run").exists()
    named = Experiment(DQN(torso=launch.named("mine", my_networks.make_torso)), CATCH).describe()
    assert named["builder"]["torso"] == {"named": "mine"}


@pytest.mark.parametrize("name", ["atari:Pong", "minatar:breakout", "gym:CartPole-v1"])
@pytest.mark.parametrize("agent", ["dqn", "rainbow", "r2d2", "impala", "ppo"])
def test_python_and_the_shell_make_the_same_experiment(agent, name):
    options = cli._parser().parse_args(["train", agent, name])
    assert train.experiment_from(options).describe() == Experiment(builders.load(agent)(), name).describe()


def test_a_part_can_be_set_back_to_its_default_where_a_preset_has_another(tmp_path):
    options = cli._parser().parse_args(["train", "impala", "atari:Pong", "--set", "torso=none"])
    experiment = train.experiment_from(options)
    assert Experiment(IMPALA(), "atari:Pong").builder.torso == "residual"
    assert experiment.builder.torso is None
    again = restore_builder(json.loads(json.dumps(experiment.describe())))
    assert Experiment(again, "atari:Pong").builder == experiment.builder


@dataclasses.dataclass(frozen=True)
class TextConfig(my_agents.Config):
    note: str = "of run 7: the second"


@dataclasses.dataclass(frozen=True)
class WithText(my_agents.ExpectedSarsa):
    config: TextConfig = TextConfig()


@dataclasses.dataclass(frozen=True)
class WithoutDefault(my_agents.ExpectedSarsa):
    size: int = dataclasses.field(kw_only=True)


@dataclasses.dataclass(frozen=True)
class Noise:
    scale: float = 1.0
    sizes: tuple[int, ...] = (8, 8)


@dataclasses.dataclass(frozen=True)
class WithNested(my_agents.ExpectedSarsa):
    noise: Noise = Noise()
    sizes: tuple[int, ...] = (4,)
    note: str = "of run 7: the second"


@dataclasses.dataclass(frozen=True)
class TwoEpsilons(my_agents.ExpectedSarsa):
    epsilon: float = 0.5


class Undecorated(DQN):
    size: int = 3


@dataclasses.dataclass(frozen=True)
class Untyped(DQN):
    torso = "flat"  # type: ignore[misc]


class UndecoratedConfig(my_agents.Config):
    batch_size: int = 7


@dataclasses.dataclass(frozen=True)
class OfUndecorated(my_agents.ExpectedSarsa):
    config: UndecoratedConfig = UndecoratedConfig()


def text():
    return "a text"


def text_of(size):
    return text()


def text_of_any(*arguments):
    return text()


GIVES = "test_own_parts"
NESTED = "test_own_parts:WithNested"


def test_fields_of_an_own_builder_are_set_and_restored_as_those_of_a_config_are():
    fields = ["noise.scale=2", "noise.sizes=3,3", "sizes=5", "note=a: b"]
    sets = [word for field in fields for word in ("--set", field)]
    builder = train.experiment_from(train.parse(NESTED, CATCH, *sets)).builder
    assert builder == WithNested(noise=Noise(2.0, (3, 3)), sizes=(5,), note="a: b")
    described = json.loads(json.dumps(Experiment(builder, CATCH).describe()))
    assert restore_builder(described) == builder


def test_a_text_with_a_colon_is_a_text():
    described = json.loads(json.dumps(Experiment(WithText(), CATCH).describe()))
    assert restore_builder(described) == WithText()


def test_a_preset_leaves_what_the_user_set():
    mine = dataclasses.replace(R2D2().config, batch_size=7)
    assert Experiment(R2D2(config=mine), "atari:Pong").builder.config == mine
    preset = Experiment(R2D2(core="gru"), "atari:Pong").builder
    assert preset.config != R2D2().config
    assert preset.core == "gru"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing:Agent", CATCH], "there is no module 'nothing'"),
        (["my_agents:Nothing", CATCH], "my_agents has no 'Nothing'"),
        (["my_agents:Config", CATCH], "is a subclass of acme_ext.builders.Builder"),
        (["dqm", CATCH], "'dqn'"),
        (["DQN", CATCH], "did you mean 'dqn'"),
        (["test_own_parts:WithoutDefault", CATCH], "these methods or defaults of fields are missing: size"),
        (["acme_ext.builders:Builder", CATCH], "missing: make_core, make_networks, make_policy, config"),
        (["dqn", "py:my_envs:make_mace"], "did you mean 'make_maze'"),
        (["dqn", "py:my_envs:make_maze", "--env-set", "sise=3"], "unexpected keyword argument 'sise'"),
        (["dqn", CATCH, "--set", "torso=natur"], "there is no torso 'natur': did you mean 'nature'"),
        (["dqn", CATCH, "--set", "torso=my_networks:make_torsos"], "did you mean 'make_torso'"),
        (["ppo", CATCH, "--set", "core=lstn"], "there is no core 'lstn': did you mean 'lstm'"),
        (["dqn", CATCH, "--set", "replay.prioritised=true"], "did you mean 'replay.prioritized'"),
        (["ppo", CATCH, "--set", "replay.prioritized=true"], "PPO has no setting 'replay.prioritized'"),
        (
            ["dqn", CATCH, "--set", "intrinsic_weight=1"],
            "intrinsic_weight is 1.0, but there is no bonus",
        ),
        (["dqn", CATCH, "--intrinsic", "rnd", "--set", "intrinsic_weight=-1"], "it must not be negative"),
        ([NESTED, CATCH, "--set", "noise.scal=2"], "did you mean 'noise.scale'"),
        ([NESTED, CATCH, "--set", "noise.scale=x"], "noise.scale is 'x': it must be a number"),
        (["test_own_parts:TwoEpsilons", CATCH], "TwoEpsilons and its config both have a field 'epsilon'"),
        (["test_own_parts:Undecorated", CATCH], "Undecorated.size is no field"),
        (["test_own_parts:Untyped", CATCH], "Untyped.torso is no field"),
        (["test_own_parts:OfUndecorated", CATCH], "UndecoratedConfig.batch_size is no field"),
        (["dqn", CATCH, "--set", f"torso={GIVES}:text"], "the torso text made str"),
        (["dqn", CATCH, "--set", f"torso={GIVES}:text_of"], "torso is text_of, which can't be called with ()"),
        (["r2d2", CATCH, "--set", f"core={GIVES}:text"], "core is text, which can't be called with (size)"),
        (["ppo", CATCH, "--set", f"core={GIVES}:text_of"], "which makes 'a text': it must make a RecurrentCore"),
        (["dqn", CATCH, "--set", f"network={GIVES}:text_of"], "can't be called with (spec, config, torso)"),
        (["ppo", CATCH, "--set", f"network={GIVES}:text_of_any"], "it must make a RecurrentNetwork"),
        (["dqn", CATCH, "--set", f"network={GIVES}:text_of_any"], "it must make a Transformed"),
        (["sac", "gym:Pendulum-v1", "--set", f"network={GIVES}:text_of_any"], "it must make a Networks"),
        (["dqn", CATCH, "--set", f"intrinsic={GIVES}:text_of_any"], "it must make a LearnerCore"),
        (["my_agents:ExpectedSarsa", "dmc:cartpole/swingup"], "needs an environment with one discrete action"),
    ],
)
def test_what_does_not_fit_is_told_in_one_sentence(capsys, tmp_path, arguments, said):
    assert cli.main(["train", *arguments, "--run-dir", str(tmp_path / "run"), "--steps", "50"]) == 2
    captured = capsys.readouterr().err
    assert said in captured
    assert "Traceback" not in captured
    assert not (tmp_path / "run" / "metrics.csv").exists()


PACKAGE = """
import my_envs
from acme_ext.builders import DQN
from acme_ext.envs.backend import Backend


class Mazes(Backend):
    def names(self):
        return ["square"]

    def options(self, name):
        return {"size": 3}

    def load(self, name, seed, evaluation, size=3):
        return my_envs.Maze(size)


class Other(DQN):
    name = "other"
"""
ENTRY_POINTS = """
[acme_ext.agents]
sarsa = my_agents:ExpectedSarsa
dqn = their_parts:Other
lost = nothing:Agent
config = my_agents:Config

[acme_ext.environments]
mazes = their_parts:Mazes
function = my_envs:make_maze
"""


@pytest.fixture
def site(tmp_path):
    """A folder with what an installation of another package leaves."""
    path = tmp_path / "site"
    (path / "theirs-1.0.dist-info").mkdir(parents=True)
    (path / "their_parts.py").write_text(PACKAGE)
    (path / "theirs-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (path / "theirs-1.0.dist-info/entry_points.txt").write_text(ENTRY_POINTS)
    return path


@pytest.mark.release
def test_parts_of_an_installed_package_go_by_their_names(site, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(site)
    assert cli.main(["list"]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"^  sarsa +my_agents:ExpectedSarsa$", listed, re.MULTILINE)
    assert re.search(r"^  mazes:NAME ", listed, re.MULTILINE)
    assert listed.count("\n  dqn ") == 1

    run = str(tmp_path / "run")
    options = ["--steps", "50", "--eval-episodes", "1", "--quiet", "--run-dir", run, "--env-set", "size=4"]
    assert cli.main(["train", "sarsa", "mazes:square", *options, "--set", "epsilon=0.3"]) == 0
    described = json.loads((tmp_path / "run/config.json").read_text())
    assert (described["agent"], described["environment"]) == ("sarsa", "mazes:square")
    assert restore_builder(described) == my_agents.ExpectedSarsa(my_agents.Config(epsilon=0.3))
    assert cli.main(["evaluate", run, "--episodes", "2"]) == 0

    import their_parts  # type: ignore[import-not-found]

    assert builders.load("dqn") is DQN
    assert builders.name_of(their_parts.Other) == "their_parts:Other"


@pytest.mark.parametrize(
    ("agent", "environment", "said"),
    [
        ("sarsb", CATCH, "did you mean 'sarsa'"),
        ("lost", CATCH, "there is no module 'nothing'"),
        ("config", CATCH, "'config' is <class 'my_agents.Config'>: an agent is a subclass of"),
        ("dqn", "maze:square", "did you mean 'mazes'"),
        ("dqn", "mazes:sqare", "did you mean 'mazes:square'"),
        ("dqn", "function:square", "the family 'function' is my_envs:make_maze: it must be a subclass of"),
    ],
)
def test_parts_of_an_installed_package_that_do_not_fit_are_refused(site, monkeypatch, capsys, agent, environment, said):
    monkeypatch.syspath_prepend(site)
    assert cli.main(["train", agent, environment, "--run-dir", str(site / "run")]) == 2
    assert said in capsys.readouterr().err
    assert not (site / "run").exists()


@pytest.mark.release
def test_an_installed_agent_runs_as_a_program_and_goes_on(site, tmp_path):
    train = ["train", "sarsa", "mazes:square", "--actors", "2", "--run-dir", str(tmp_path / "run"), "--eval-every", "0"]
    path = f"{site}{os.pathsep}{EXAMPLES}"
    acme_ext(*train, "--steps", "1500", cwd=tmp_path, path=path)
    assert "3 episodes" in acme_ext("evaluate", str(tmp_path / "run"), "--episodes", "3", cwd=tmp_path, path=path)
    acme_ext(*train, "--steps", "2500", cwd=tmp_path, path=path)


def acme_ext(*arguments, cwd, path=""):
    environment = {**os.environ, "PYTHONPATH": f"{EXAMPLES.parent}{os.pathsep}{path}"}
    done = subprocess.run(
        [sys.executable, "-m", "acme_ext", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.release
def test_an_own_agent_is_evaluated_and_resumed_by_fresh_processes(tmp_path):
    """With a setting, an environment and its option, each by name alone."""
    run, train = (
        str(tmp_path / "run"),
        ["train", "my_agents:ExpectedSarsa", "py:my_envs:make_maze", "--env-set", "size=3"],
    )
    options = ["--set", "epsilon=0.2", "--eval-every", "0", "--run-dir", run]
    acme_ext(*train, *options, "--steps", "1500", cwd=EXAMPLES)
    described = json.loads((tmp_path / "run" / "config.json").read_text())
    assert described["agent"] == "my_agents:ExpectedSarsa"
    assert described["environment"] == "py:my_envs:make_maze"
    assert restore_builder(described) == my_agents.ExpectedSarsa(my_agents.Config(epsilon=0.2))
    assert "3 episodes" in acme_ext("evaluate", run, "--episodes", "3", cwd=EXAMPLES)
    assert "1,500" in acme_ext(*train, *options, "--steps", "2500", cwd=EXAMPLES)


@pytest.mark.release
@pytest.mark.parametrize(
    ("agent", "environment", "steps", "least"),
    [
        ("my_agents:ExpectedSarsa", "py:my_envs:make_maze", 20_000, 0.9),
        ("recurrent_dqn:RecurrentDQN", "bsuite:memory_len/2", 30_000, 0.9),
        ("rnd:RND", "py:my_envs:make_maze", 100_000, 0.9),
    ],
)
def test_the_examples_as_programs_of_two_actors(tmp_path, agent, environment, steps, least):
    arguments = ["train", agent, environment, "--actors", "2", "--num-envs", "4", "--steps", str(steps)]
    out = acme_ext(*arguments, "--eval-every", "0", "--run-dir", str(tmp_path / "run"), cwd=EXAMPLES)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["agent"] == agent
    found = re.search(r"^evaluation +(?:return )?(-?[\d.]+)", out, re.MULTILINE)
    assert found, out
    assert float(found[1]) >= least


class WithoutErrors(my_agents.ExpectedSarsa):
    def make_core(self, spec, networks):
        core = super().make_core(spec, networks)
        return dataclasses.replace(core, step=lambda state, sample: (*core.step(state, sample)[:2], None))


def test_prioritized_replay_is_refused_for_a_core_without_errors(tmp_path):
    replay = TransitionConfig(prioritized=True)
    builder = WithoutErrors(my_agents.Config(replay=replay))
    with pytest.raises(UsageError, match="prioritized"):
        launch.run(Experiment(builder, CATCH, run_dir=str(tmp_path / "run")), quiet=True)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_every_agent_is_a_builder_by_its_module_too():
    for name, (cls, _) in builders.AGENTS.items():
        assert builders.load(f"acme_ext.builders.{name}:{cls}") is builders.load(name)
        assert issubclass(builders.load(name), Builder)
