"""Each section of the speed benchmark, as small as it can be; nothing is said of the speeds."""

import dataclasses
import json
import math
import subprocess
import sys
import time

import jax
import numpy as np
import psutil
import pytest

from acme_ext.acting.inference import LocalInference
from acme_ext.acting.variables import POLICY, VariableClient
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.builders.dqn import DQN
from acme_ext.ops.search import SearchConfig
from acme_ext.replay.config import TransitionConfig, UnrollConfig
from benchmarks.shared.report import Figure
from benchmarks.speed import cartpole
from benchmarks.speed import run as speed
from benchmarks.speed.tables import FixedVariables

pytestmark = pytest.mark.release


def check(figures: list[Figure], count: int) -> None:
    """Every figure is of a kind of its own, positive, and beside positive others."""
    assert len({figure.name for figure in figures}) == len(figures) == count
    for figure in figures:
        assert 0 < figure.low <= figure.value <= figure.high < math.inf
        assert figure.references
        for reference in figure.references:
            assert 0 < reference.value < math.inf
            assert 0 < reference.ratio < math.inf


def _command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended meanwhile
        return ""


def test_a_killed_command_leaves_nothing():
    command = subprocess.Popen([sys.executable, "-m", "benchmarks.speed", "--only", "program", "--seconds", "1000"])
    try:
        me = psutil.Process(command.pid)
        begun: list[psutil.Process] = []
        while sum("keeper" in _command_of(process) for process in begun) < 2:
            time.sleep(0.05)
            begun = me.children(recursive=True)
    finally:
        command.kill()
        command.wait()
    _, left = psutil.wait_procs(begun, timeout=60)
    assert left == []


def test_the_command_measures_prints_and_writes(tmp_path, capsys):
    arguments = ["--only", "writer", "--seconds", "0.001", "--rounds", "1", "--out", str(tmp_path / "x"), "--busy"]
    assert speed.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "acme NStepTransitionAdder n=3" in printed
    figures = json.loads((tmp_path / "x.json").read_text())["figures"]
    assert [f["section"] for f in figures] == ["writer"] * 6
    assert all(any(r["goal"] == 6 for r in f["references"]) for f in figures)
    page = (tmp_path / "x.md").read_text()
    assert "TransitionReplay.writer B=32 n=3" in page
    assert "load_before" in page
    assert "load_during" in page


def test_dataset():
    from benchmarks.speed.sections import dataset

    figures = dataset.run(0.001, 1)
    check(figures, 8)
    assert all([r.goal for r in figure.references] == [None, 3.0] for figure in figures)


def test_learner():
    from benchmarks.speed.sections import learner

    small, *_, large = learner.settings()
    assert large.name.startswith("Nature")
    figures = learner.measure(small._replace(fused=(1, 2)), 0.001, 1)
    check(figures, 2)
    assert all(figure.references[0].goal == 0.8 for figure in figures)


def test_continuous():
    from benchmarks.speed.sections import continuous
    from benchmarks.speed.sections.learner import measure_resident

    of = {builder.name: builder for builder in continuous.agents()}
    assert {"sac", "td3"} <= set(of)
    assert not {"dqn", "apex"} & set(of)
    config = dataclasses.replace(of["td3"].config, hidden_sizes=(8,), batch_size=16, sgd_steps_per_call=2)
    small = dataclasses.replace(of["td3"], config=config)
    found = measure_resident("continuous", small, continuous.SPEC, 0.001, 1)
    check([found], 1)
    assert [reference.goal for reference in found.references] == [0.8, None]
    assert "td3, batch 16" in found.name


def test_accelerator(monkeypatch):
    from benchmarks.speed.sections import accelerator

    monkeypatch.setattr(accelerator, "_SIDE", 64)
    monkeypatch.setattr(accelerator, "ENVIRONMENTS", (16,))
    found = [accelerator.cartpole(16, 0.001, 1), accelerator.atari(2, 0.001, 1), accelerator.pictures(2, 0.001, 1)]
    check(found, 3)
    assert [reference.goal for reference in found[0].references] == [0.9, 1.0]
    assert "320 MFLOP" in found[1].references[0].name
    assert "56 x 56 x 3" in found[2].name


def test_the_images_are_of_their_spec():
    from benchmarks.speed.sections import learner

    *_, large = learner.settings()
    timesteps = large.timesteps(2)
    assert len(timesteps) == cartpole.LENGTH + 1
    for timestep in timesteps:
        for image in timestep.observation:
            large.spec.observations.validate(image)


def test_acting(monkeypatch):
    from benchmarks.speed.sections import acting

    monkeypatch.setattr(acting, "_BATCHES", (1, 2))
    check(acting.run(0.001, 1), 4)


def test_training():
    from benchmarks.speed.sections import training

    config = DQNConfig(replay=TransitionConfig(min_size=64, samples_per_insert=2.0), batch_size=8, sgd_steps_per_call=2)
    figures = training.measure(config, (2,), 100, 300, 1)
    check(figures, 1)
    assert [(r.source, r.goal) for r in figures[0].references] == [("measured", 0.7)]


@pytest.mark.parametrize("which", [0, 1])
def test_onpolicy(which, monkeypatch):
    from benchmarks.speed.sections import onpolicy

    setting = onpolicy.SETTINGS[which]
    config = {"batch_size": 2, "replay": UnrollConfig(length=8), "hidden_sizes": (8,), "image_features": 8}
    builder = dataclasses.replace(setting.builder, config=dataclasses.replace(setting.builder.config, **config))
    found = onpolicy.measure(setting._replace(builder=builder, num_envs=2, warm_up=60), 60, 1, 0.001)
    check([found], 1)
    assert [reference.goal for reference in found.references] == [0.8, None, None, None, None]
    assert setting.environment in found.name


@pytest.mark.release
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_compiled(name):
    from benchmarks.speed.sections import compiled

    found = compiled.measure(name, 8, 0.001, 1)
    check([found], 1)
    assert [reference.goal for reference in found.references] == [0.9, compiled._SINGLE_GOALS[name]]


def test_search(monkeypatch):
    from benchmarks.speed.sections import search

    monkeypatch.setattr(search, "_GAME", "tic_tac_toe")
    settings = search.settings(2)
    assert [setting.name.partition(",")[0] for setting in settings] == ["MuZero", "MuZero", "AlphaZero"]
    assert settings[1].builder.make_agent(settings[1].spec)
    small = {"hidden_sizes": (8,), "state_size": 8, "search": SearchConfig(simulations=2)}
    for setting in (settings[0], settings[2]):
        builder = dataclasses.replace(setting.builder, config=dataclasses.replace(setting.builder.config, **small))
        simulations, moves = found = search.measure(setting._replace(builder=builder), 0.001, 1)
        check(found, 2)
        assert [f.references[0].goal for f in found] == [0.9, 0.9]
        assert simulations.value == 2 * moves.value
        assert len(moves.references) == (2 if setting is settings[2] else 1)
        if setting is settings[2]:
            check([played := search.self_play(builder, 2, 0.001, 1)], 1)
            assert played.references[0].ratio == played.value / 2_000


def test_a_search_is_held_against_the_same_search():
    from benchmarks.speed.sections import search

    rng, chosen = np.random.default_rng(0), set()
    for setting in search.settings(8):
        agent = setting.builder.make_agent(setting.spec)
        (params,) = FixedVariables.of(agent).get_variables([POLICY])
        params = jax.tree.map(lambda x: x + 0.1 * rng.standard_normal(x.shape).astype(np.float32), params)
        ours = LocalInference(
            agent.evaluation_policy, VariableClient(FixedVariables({POLICY: params})), jax.random.key(0), 8
        )
        act, position = (search._by_rules if "rules" in setting.name else search._by_model)(setting, noise=0.0)
        found = np.asarray(jax.jit(act)(params, jax.random.key(1), position))
        action, extras, _ = ours.step(0, setting.timestep)
        same = action == found
        # Where two actions are as good, rounding decides.
        np.testing.assert_allclose(extras.policy[~same, found[~same]], extras.policy[~same].max(axis=-1), atol=0.05)
        chosen |= {(setting.name, action) for action in found[same].tolist()}
    assert len(chosen) > 3


def test_intrinsic():
    from benchmarks.speed.sections import intrinsic
    from benchmarks.speed.sections.learner import measure_resident

    assert [pair.goal for pair in intrinsic.PAIRS] == [None, None, None, 0.5]
    last = intrinsic.PAIRS[-1]
    assert last.num_envs == 32
    assert last.bonus.config.memory_rows == 1_000
    check([intrinsic.acting(last._replace(num_envs=2), 0.001, 1), intrinsic.memory(2, 16, 0.001, 1)], 2)
    config = dataclasses.replace(last.bonus.config, memory_rows=16, batch_size=2, hidden_sizes=(8,), core_size=8)
    small = dataclasses.replace(last.bonus, config=config)
    check([measure_resident("intrinsic", small, cartpole.SPEC, 0.001, 1)], 1)


def test_fixed_data():
    from benchmarks.speed.sections import fixed_data

    for builder, spec in fixed_data._GATHERED:
        check([found := fixed_data.gather(builder, spec, 0.001, 1, rows=1_000)], 1)
        assert found.references[0].goal == 0.7
    bc, spec = next((b, s) for b, s in fixed_data._LEARNERS if b.name == "bc")
    small = dataclasses.replace(bc, config=dataclasses.replace(bc.config, hidden_sizes=(8,), batch_size=8))
    check([found := fixed_data.learning(small, spec, 0.001, 1, rows=100)], 1)
    assert [r.goal for r in found.references] == [0.9, None]


def test_recording(monkeypatch):
    from benchmarks.speed.sections import fixed_data

    monkeypatch.setattr(fixed_data, "SHARD_STEPS", 1_000)
    config = DQNConfig(replay=TransitionConfig(min_size=64), hidden_sizes=(8,), batch_size=8, sgd_steps_per_call=2)
    found = fixed_data.recording(DQN(config), 0.001, 1, num_envs=2)
    check([found], 1)
    assert [(r.source, r.goal) for r in found.references] == [("computed", 0.95), ("measured", None)]
    assert found.value < found.references[1].value


def test_program(monkeypatch):
    from benchmarks.speed.sections import program

    def attempt(trial):
        return program.Outcome(5.0, 6.0, 1.5, trial.actors * 300.0, 800.0)

    monkeypatch.setattr(program, "attempt", attempt)
    monkeypatch.setattr(program, "_resident", lambda environment, config, seconds: 1_000.0)
    figures = program.measure(1.0, 1, (1, 2), [("tiny", "gym:CartPole-v1", DQNConfig())])
    check(figures, 9)
    assert [f.references[0].met for f in figures] == [None, None, True, True, *[None] * 4, True]
    assert [f.value for f in figures[:4]] == [5.0, 6.0, 1.5, 1.5]


def test_a_program_is_timed_from_its_command_to_its_exit():
    from benchmarks.speed.sections import program

    config = DQNConfig(hidden_sizes=(8,), batch_size=8, replay=TransitionConfig(min_size=50), sgd_steps_per_call=1)
    trial = program.Trial(program.Unlimited(config), actors=1, sleep_s=1e-3, seconds=2.0)
    found = program.attempt(trial)
    assert 0 < found.first_action < found.first_learner_step
    assert found.stop > 0
    assert found.actor_rate > 0
    assert found.learner_rate > 0
    assert program.attempt(dataclasses.replace(trial, seconds=None, steps=300)).stop > 0


def test_the_learner_on_a_resident_batch_is_that_of_the_program():
    from benchmarks.speed.sections import program

    config = DQNConfig(
        image_features=8, batch_size=4, replay=TransitionConfig(min_size=20, max_size=100), sgd_steps_per_call=1
    )
    assert program._resident("images", config, 0.001) > 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--only", "writers"], "did you mean 'writer' or"), (["--seconds", "0"], "--seconds must be positive")],
)
def test_what_cannot_be_is_refused_in_a_sentence(arguments, says, capsys):
    assert speed.main(arguments) == 2
    assert says in capsys.readouterr().err


def test_experience_is_made_as_environments_give_it():
    timesteps = cartpole.timesteps(5)
    for before, after in zip(timesteps, [*timesteps[1:], timesteps[0]], strict=True):
        for row in range(5):
            assert (before.step_type[row] == 2) == (after.step_type[row] == 0)
    assert sum(int(t.step_type[3] == 0) for t in timesteps) == 1
    first, *rest = cartpole.episode()
    assert first.first()
    assert [t.last() for t in rest] == [False] * (cartpole.LENGTH - 1) + [True]
