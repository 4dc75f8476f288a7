"""Compiled runs: what they learn beside a single process, seeds, resuming, and what is refused."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import my_jax_envs
import numpy as np
import pytest

from acme_ext import builders, envs, launch
from acme_ext.acting import memories
from acme_ext.agents.muzero.config import RootsConfig
from acme_ext.commands import cli
from acme_ext.commands.record import record_run
from acme_ext.errors import NotFiniteError, RunError, UsageError
from acme_ext.launch import Checkpoints, Evaluation, Experiment, load
from acme_ext.launch.engines.compiled import engine
from acme_ext.launch.runs import directory
from acme_ext.launch.runs.saving import BestParams, Counts
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.ops.search import SearchConfig
from acme_ext.replay import SequenceConfig, TransitionConfig, UnrollConfig
from acme_ext.utils import compiling, loggers
from acme_ext.utils.rundir import RunDirectory

pytestmark = pytest.mark.usefixtures("no_figures")

_UNROLLS = UnrollConfig(max_size=4, length=9)
# An episode of catch has 9 steps and a reset, so that after 3 unrolls of 9 an environment has taken 25 steps.
_THREE_UNROLLS = 4 * 25


def ppo(**fields: Any) -> builders.PPO:
    config = builders.PPO().config
    config = dataclasses.replace(config, hidden_sizes=(8,), batch_size=4, num_minibatches=2, num_epochs=2, **fields)
    return builders.PPO(dataclasses.replace(config, replay=_UNROLLS))


def dqn(**replay: Any) -> builders.DQN:
    config = TransitionConfig(**{"n_step": 2, "min_size": 20, "samples_per_insert": 4.0, "max_size": 64, **replay})
    return builders.DQN(dataclasses.replace(builders.DQN().config, hidden_sizes=(8,), batch_size=8, replay=config))


def experiment(folder: Path, builder: Any, steps: int = _THREE_UNROLLS, **fields: Any) -> Experiment:
    fields = {
        "environment": "jax:catch",
        "num_envs": 4,
        "evaluation": Evaluation(every=0, final_episodes=3, num_envs=2),
        "checkpoints": Checkpoints(every_s=0),
        **fields,
    }
    return Experiment(builder, steps=steps, run_dir=str(folder), **fields)


def learned(each: Experiment) -> Any:
    """The state of the learner that a run left."""
    core = each.builder.make_agent(each.make_spec()).core
    restored = CheckpointStore(each.directory / "checkpoints").restore({"learner": core.abstract_state()})
    assert restored is not None
    state = restored.trees["learner"]
    return jax.tree.map(
        lambda x: jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x, state
    )


def in_one_process(single: Experiment, capsys: Any) -> Any:
    """The result of a run in one process. It is run again if Reverb lost samples and a learner call was skipped, which
    happens when a reader has waited for 3 seconds, while something is compiled on a busy machine.
    """
    for _ in range(3):
        result = launch.run(single, fresh=True, quiet=True)
        if "a learner call is skipped" not in capsys.readouterr().out:
            return result
    pytest.skip("Reverb has lost samples three times")


def started(script: str, *arguments: Any, devices: int = 1, **options: Any) -> subprocess.Popen:
    """A Python of its own that runs a script of this folder."""
    here = Path(__file__).parent
    root = here.parents[1]
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": os.pathsep.join(map(str, (root, root / "examples", here))),
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, str(here / script), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **options)


def assert_close(a: Any, b: Any, **tolerance: float) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


@pytest.mark.slow
def test_ppo_learns_what_it_learns_in_one_process(tmp_path, capsys):
    compiled, single = (experiment(tmp_path / name, ppo()) for name in ("compiled", "single"))
    result = launch.run(compiled, launch.Compiled(), quiet=True)
    expected = in_one_process(single, capsys)
    assert (result.environment_steps, result.learner_steps) == (_THREE_UNROLLS, 3)
    assert (expected.environment_steps, expected.learner_steps) == (_THREE_UNROLLS, 3)
    assert_close(learned(compiled), learned(single), rtol=1e-3, atol=1e-4)
    assert result.score.returns.tolist() == expected.score.returns.tolist()
    for pattern in ("*.json", "logs/*.csv", "tensorboard/*/*"):
        there, here = (len(list((tmp_path / name).glob(pattern))) for name in ("single", "compiled"))
        assert there == here > 0, pattern
    # The run directory is one like any other.
    assert load(tmp_path / "compiled").evaluate().returns.tolist() == result.score.returns.tolist()


@pytest.mark.release
@pytest.mark.parametrize(("num_envs", "batches"), [(2, 1), (8, 2)])
def test_unrolls_of_fewer_or_more_environments_than_a_batch_has(tmp_path, capsys, num_envs, batches):
    builder = builders.IMPALA(
        dataclasses.replace(builders.IMPALA().config, hidden_sizes=(8,), core_size=4, batch_size=4, replay=_UNROLLS),
        core="lstm",
    )
    steps = num_envs * {2: 33, 8: 17}[num_envs]  # in 36 ticks, 3 of them resets, or in 18
    compiled, single = (
        experiment(tmp_path / name, builder, steps, num_envs=num_envs) for name in ("compiled", "single")
    )
    result = launch.run(compiled, launch.Compiled(), quiet=True)
    expected = in_one_process(single, capsys)
    assert result.learner_steps == expected.learner_steps == 2 * batches
    assert_close(learned(compiled), learned(single), rtol=1e-3, atol=1e-4)


@pytest.mark.release
def test_a_replay_run_that_was_stopped_goes_on_to_what_it_would_have_been(tmp_path):
    whole, parts = (experiment(tmp_path / name, dqn(prioritized=True), 160) for name in ("whole", "parts"))
    result = launch.run(whole, launch.Compiled(), quiet=True)
    launch.run(dataclasses.replace(parts, steps=80), launch.Compiled(), quiet=True)
    resumed = launch.run(parts, launch.Compiled(), quiet=True)
    assert resumed.learner_steps == result.learner_steps > 50
    assert_close(learned(parts), learned(whole), rtol=0, atol=0)
    rows = loggers.read_csv(tmp_path / "parts/logs/learner.csv")
    assert rows["environment_steps"].tolist() == sorted(set(rows["environment_steps"].tolist()))
    assert {"loss", "gradient_norm", "learner_steps"} <= set(rows)


@pytest.mark.parametrize("kept", [pytest.param(True, marks=pytest.mark.release), False])
def test_a_resumed_run_may_keep_its_replay_or_stop_keeping_it(kept, tmp_path):
    begun = experiment(tmp_path, dqn(), 80, checkpoints=Checkpoints(replay=kept))
    launch.run(begun, launch.Compiled(), quiet=True)
    rest = dataclasses.replace(begun, steps=160, checkpoints=Checkpoints(replay=not kept))
    result = launch.run(rest, launch.Compiled(), quiet=True)
    assert result.environment_steps >= 160
    assert result.learner_steps > 50
    saved = CheckpointStore(tmp_path / "checkpoints").restore({})
    assert saved is not None
    assert (saved.path / "replay.npz").exists() == (not kept)


@pytest.mark.release
def test_a_run_goes_on_without_the_evaluations_that_it_began_with(tmp_path):
    often = Evaluation(every=40, episodes=1, final_episodes=1, num_envs=1)
    begun = experiment(tmp_path, ppo(), evaluation=often)
    launch.run(begun, launch.Compiled(), quiet=True)
    rest = dataclasses.replace(begun, steps=2 * _THREE_UNROLLS, evaluation=dataclasses.replace(often, every=0))
    result = launch.run(rest, launch.Compiled(), quiet=True)
    assert result.environment_steps >= 2 * _THREE_UNROLLS


def test_evaluations_may_become_more_frequent(tmp_path):
    for steps, every in ((80, 1000), (200, 40)):
        evaluation = Evaluation(every=every, episodes=1, final_episodes=1, num_envs=1)
        launch.run(experiment(tmp_path, dqn(), steps, evaluation=evaluation), launch.Compiled(), quiet=True)
    assert loggers.read_csv(tmp_path / "logs/evaluator.csv")["environment_steps"].tolist() == [80, 120, 160, 200]


def r2d2(builder: Any, **fields: Any) -> Any:
    replay = SequenceConfig(
        length=6, burn_in=2, period=3, min_size=4, max_size=64, samples_per_insert=4.0, prioritized=True
    )
    fields = {"hidden_sizes": (8,), "core_size": 4, "batch_size": 4, "replay": replay, **fields}
    return builder.replace(config=dataclasses.replace(builder.config, **fields))


@pytest.mark.release
def test_a_run_of_sequences_that_was_stopped_goes_on_to_what_it_would_have_been(tmp_path):
    whole, parts = (experiment(tmp_path / name, r2d2(builders.R2D2()), 160) for name in ("whole", "parts"))
    result = launch.run(whole, launch.Compiled(), quiet=True)
    launch.run(dataclasses.replace(parts, steps=80), launch.Compiled(), quiet=True)
    resumed = launch.run(parts, launch.Compiled(), quiet=True)
    assert resumed.learner_steps == result.learner_steps > 30
    assert_close(learned(parts), learned(whole), rtol=0, atol=0)
    assert load(tmp_path / "whole").evaluate().returns.tolist() == result.score.returns.tolist()


@pytest.mark.release
def test_what_a_policy_carries_is_saved_and_given_to_the_evaluation(tmp_path, monkeypatch):
    small = r2d2(builders.Agent57(), num_arms=3, memory_rows=16, embedding_size=4)
    results = launch.run(experiment(tmp_path / "run", small, 200), launch.Compiled(seeds=2), quiet=True).seeds
    for result in results:
        loaded = load(result.run_dir)
        plays, returns, *_ = loaded.loaded.statistics
        assert sum(plays) == 4 * 5  # whole episodes
        assert sum(returns) == int(sum(returns)) != 0
        action, _ = loaded.policy(np.zeros((10, 5), np.float32), None, explore=True)
        assert 0 <= action < 3
    briefed = []
    monkeypatch.setattr(memories.MemoryHolder, "brief", lambda self, statistics: briefed.append(statistics))
    for policy in ("evaluation", "training"):
        record_run(results[0].run_dir, tmp_path / policy, steps=9, num_envs=1, policy=policy)
    assert briefed == [load(results[0].run_dir).loaded.statistics]
    monkeypatch.undo()
    assert load(results[1].run_dir).evaluate().returns.tolist() == results[1].score.returns.tolist()
    assert results[0].learner_steps > 20


@pytest.mark.release
def test_alphazero_plays_searches_and_learns_in_one_program(tmp_path):
    config = dataclasses.replace(
        builders.AlphaZero().config,
        search=SearchConfig(simulations=4, value_scale=1.0, value_range=0.1),
        hidden_sizes=(8,),
        state_size=8,
        batch_size=4,
        replay=RootsConfig(length=9, max_size=32, min_size=4, samples_per_insert=8.0),
    )
    run = experiment(tmp_path / "run", builders.AlphaZero(config), 120, environment="board:tic_tac_toe")
    result = launch.run(run, launch.Compiled(), quiet=True)
    assert result.learner_steps > 10
    assert set(result.score.returns.tolist()) <= {-1.0, 0.0, 1.0}
    assert (result.score.lengths <= 5).all(), "against an opponent, whose moves are none of the agent's"
    # The run directory is one like any other.
    assert len(load(tmp_path / "run").evaluate().returns) == 3


@pytest.mark.slow
def test_a_seed_of_several_is_that_seed_alone(tmp_path):
    together = experiment(tmp_path / "together", dqn(), 120, seed=5, evaluation=Evaluation(60, 2, 3, 2))
    results = launch.run(together, launch.Compiled(seeds=2), quiet=True).seeds
    assert [result.run_dir.name for result in results] == ["s5", "s6"]
    alone = experiment(tmp_path / "alone", dqn(), 120, seed=6, evaluation=Evaluation(60, 2, 3, 2))
    result = launch.run(alone, launch.Compiled(), quiet=True)
    assert results[1].learner_steps == result.learner_steps
    of_six = dataclasses.replace(together, seed=6, run_dir=str(results[1].run_dir))
    assert_close(learned(of_six), learned(alone), rtol=1e-3, atol=1e-4)
    scores = loggers.read_csv(results[0].run_dir / "logs/evaluator.csv")["episode_return_mean"]
    assert len(scores) == 2
    assert BestParams(RunDirectory.open(results[0].run_dir)).mean == pytest.approx(max(scores))


@pytest.mark.release
@pytest.mark.parametrize("kind", ["ppo", "r2d2", "dqn"])
def test_four_devices_learn_what_one_learns(tmp_path, kind):
    out, _ = started("spread_runs.py", kind, tmp_path, devices=4).communicate()
    said = json.loads(out.splitlines()[-1])
    assert said["devices"] == 4
    assert said["steps"][0] == said["steps"][1] > 5
    assert said["difference"] < 1e-4
    assert said["returns"][0] == said["returns"][1]


@pytest.mark.release
def test_a_killed_run_goes_on_to_what_it_would_have_been(tmp_path):
    whole, killed = (experiment(tmp_path / name, dqn(prioritized=True), 160) for name in ("whole", "killed"))
    launch.run(whole, launch.Compiled(), quiet=True)
    for when in ("between", "inside", "saving"):
        process = started("killed_run.py", tmp_path / "killed", when)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    result = launch.run(killed, launch.Compiled(), quiet=True)
    assert result.environment_steps == 160
    assert_close(learned(killed), learned(whole), rtol=0, atol=0)
    rows = loggers.read_csv(killed.directory / "logs/learner.csv")["environment_steps"].tolist()
    assert rows == sorted(set(rows))


@pytest.mark.release
def test_a_continuous_agent_acts_and_learns(tmp_path):
    config = dataclasses.replace(
        builders.SAC().config,
        batch_size=8,
        replay=TransitionConfig(min_size=10, samples_per_insert=8.0, max_size=100),
    )
    sac = experiment(tmp_path / "sac", builders.SAC(config), 60, environment="jax:Pendulum-v1", num_envs=2)
    result = launch.run(sac, launch.Compiled(), quiet=True)
    assert result.environment_steps == 60
    assert result.learner_steps > 40
    assert (result.score.lengths == 200).all()


_CORRIDOR = "py:my_jax_envs:make_corridor"


def test_the_environment_that_is_shown_keeps_the_contract():
    page = (Path(__file__).parents[2] / "docs/compiled.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert Path(my_jax_envs.__file__).read_text(encoding="utf-8").endswith(shown)
    assert envs.make_functional(_CORRIDOR, length=5) == envs.make_functional(_CORRIDOR, evaluation=True, length=5)
    assert envs.make_functional("gym:CartPole-v1") is None
    single = envs.make_single(_CORRIDOR, seed=1, length=5)
    batch = envs.make(_CORRIDOR, num_envs=2, length=5)
    assert batch.reset().observation.shape == (2, *single.reset().observation.shape) == (2, 5)
    seen = [batch.step(np.array([1, 0])) for _ in range(20)]
    ends = np.array([timestep.step_type == 2 for timestep in seen])
    discounts = np.array([timestep.discount for timestep in seen])
    assert ends[:, 0].sum() > 2, "to the right it ends"
    assert (discounts[:, 0][ends[:, 0]] == 0).all()
    assert ends[:, 1].tolist() == [False] * 19 + [True], "to the left the time runs out"
    assert (discounts[:, 1] == 1).all()


@pytest.mark.slow
def test_the_environment_that_is_shown_runs_in_all_ways(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ("--set", "hidden_sizes=[16]", "--set", "replay.min_size=20", "--set", "replay.max_size=200", "--quiet")
    for name, way in (("compiled", ["--on", "compiled"]), ("single", [])):
        arguments = ["train", "dqn", _CORRIDOR, *way, "--num-envs", "4", "--steps", "60", "--run-dir", name]
        assert cli.main([*arguments, *small, "--eval-episodes", "4", "--env-set", "length=5"]) == 0
        described = RunDirectory.open(tmp_path / name).read_config()
        assert (described["environment"], described["environment_options"]) == (_CORRIDOR, {"length": 5})
    assert len(load(tmp_path / "compiled").evaluate().returns) == 4


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    builder = dqn().replace(config=dataclasses.replace(dqn().config, learning_rate=1e38, max_gradient_norm=None))
    with pytest.raises((NotFiniteError, RunError), match="not finite at learner step"):
        launch.run(experiment(tmp_path / "run", builder, 200), launch.Compiled(), quiet=True)


def test_of_several_seeds_none_is_deleted_where_one_is_refused(tmp_path):
    each = launch.Compiled(seeds=2).experiments(experiment(tmp_path, ppo()))
    for one in each:
        directory.prepare(one)
    (tmp_path / "s0" / "mine").write_text("x")
    with RunDirectory.open(tmp_path / "s1").lock(), pytest.raises(UsageError, match="another run holds"):
        launch.run(experiment(tmp_path, ppo()), launch.Compiled(seeds=2), fresh=True, quiet=True)
    assert (tmp_path / "s0" / "mine").exists()


@pytest.mark.parametrize("seeds", [0, 1.5, "x", True])
def test_a_number_of_seeds_that_is_none_is_refused(tmp_path, seeds):
    with pytest.raises(UsageError, match=f"^seeds is {seeds!r}: it must be"):
        launch.run(experiment(tmp_path / "run", ppo()), launch.Compiled(seeds=seeds), quiet=True)
    assert not (tmp_path / "run").exists()


def test_several_seeds_are_not_put_into_the_run_of_one(tmp_path):
    directory.prepare(experiment(tmp_path, ppo()))
    for fresh in (False, True):
        with pytest.raises(UsageError, match="holds a run of one seed: choose another directory for the 2 seeds' runs"):
            launch.run(experiment(tmp_path, ppo()), launch.Compiled(seeds=2), fresh=fresh, quiet=True)
    assert not (tmp_path / "s0").exists()


def test_a_call_that_took_long_makes_the_next_shorter(monkeypatch):
    made, seconds = iter([8, 3, 1, 1]), iter([0, 0.1, 1, 7, 10, 10.1, 20, 20.1])
    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    run: Any = object.__new__(engine.CompiledEngine)
    run._sessions, run._many = [SimpleNamespace(next_stop=100, counts=Counts(learner_steps=1))], False
    run._world, run._loop, run._pace, run._count = None, SimpleNamespace(sharding=None), engine._Pace(), lambda: None
    run._pace.most = 8
    run._advance = lambda world, target, most: (world, next(made))
    lengths = []
    for _ in range(4):
        run.advance()
        lengths.append(run._pace.most)
    # The second call ended early, because a log row was due, and yet took 6 s. The last ended early too.
    assert lengths == [16, 1, 2, 2]


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_call_ends_where_learning_begins(tmp_path, seeds):
    each = experiment(tmp_path, dqn(min_size=20), 100)
    each = [dataclasses.replace(each, seed=seed) for seed in range(seeds)]
    spec = each[0].make_spec()
    agent = dataclasses.replace(each[0].make_agent(spec), sgd_steps_per_call=1)
    loop = engine.Loop(agent, engine.environment_of(each[0]), 4, "DQN")
    worlds = [loop.init(*engine.keys_of(one)) for one in each]
    if seeds == 1:
        world, advance, target = worlds[0], loop.advance, np.int32(100)
    else:
        world = jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *worlds)
        advance, target = loop.advance_all, np.full(seeds, 100, np.int32)
    made, steps, learned = [], [], []
    for _ in range(2):
        world, count = compiling.jit(advance)(world, target, np.int32(12))
        made.append(int(count))
        steps.append(np.ravel(world.place.steps).tolist())
        learned.append(np.ravel(world.learning.steps).tolist())
    # Four environments have made more than 20 transitions of two steps after seven steps, and learn from then on.
    assert made == [7, 12]
    assert steps == [[28] * seeds, [72] * seeds]
    assert all(0 < first < second for first, second in zip(*learned, strict=True))


def test_the_calls_are_short_again_where_learning_begins():
    run: Any = object.__new__(engine.CompiledEngine)
    counts = Counts()
    run._sessions, run._many, run._world = [SimpleNamespace(next_stop=100, counts=counts)], False, None
    run._loop, run._pace = SimpleNamespace(sharding=None), engine._Pace()
    run._advance = lambda world, target, most: (world, most)
    learner_steps, lengths = iter([0, 0, 3, 6]), []
    run._count = lambda: setattr(counts, "learner_steps", next(learner_steps))
    for _ in range(4):
        run.advance()
        lengths.append(run._pace.most)
    assert lengths == [2, 4, 1, 2]


def test_a_compiled_evaluation_without_an_end_is_told_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(engine, "LONG", 5)
    monkeypatch.setattr("acme_ext.launch.runs.evaluation.LONG", 5)
    launch.run(experiment(tmp_path, ppo()), launch.Compiled(), quiet=True)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "no episode of" in line]
    assert "no episode of jax:catch has ended in 5 steps of an evaluation" in line


def test_a_compiled_run_is_not_said_to_learn_nothing_where_it_does(tmp_path, capfd):
    result = launch.run(experiment(tmp_path, dqn(min_size=600, max_size=2_000), 640), launch.Compiled(), quiet=True)
    assert result.learner_steps > 0
    assert "nothing will be learned" not in capfd.readouterr().out


def refused(capsys: Any, *arguments: str) -> str:
    assert cli.main(["train", *arguments, "--quiet"]) == 2
    return capsys.readouterr().err


def test_what_cannot_run_compiled_is_refused_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    compiled = ("--on", "compiled")
    most = refused(capsys, "ppo", "jax:CartPole-v1", "--steps", "3_000_000_000", *compiled)
    assert "steps is 3000000000: a compiled run can make at most 2000000000" in most
    assert "did you mean 'jax:CartPole-v1'" in refused(capsys, "ppo", "gym:CartPole-v1", *compiled)
    assert "the opponent is 'random'" in refused(
        capsys, "alphazero", "board:tic_tac_toe", *compiled, "--env-set", "opponent=minimax"
    )
    assert "--actors can't be used with --on" in refused(capsys, "ppo", "jax:catch", *compiled, "--actors", "2")
    assert "--evaluators can't be used with --on" in refused(capsys, "ppo", "jax:catch", *compiled, "--evaluators", "2")
    assert "num_devices is 99" in refused(capsys, "ppo", "jax:catch", *compiled, "--devices", "99")
    assert "one must be a multiple of the other" in refused(capsys, "ppo", "jax:catch", *compiled, "--num-envs", "5")
    assert "rows_per_item is 4" in refused(capsys, "dqn", "jax:catch", *compiled, "--set", "replay.rows_per_item=4")
    assert "GB are free: choose a smaller replay.max_size" in refused(
        capsys, "dqn", "jax:catch", *compiled, "--set", "replay.max_size=2000000000"
    )
    assert "--seeds is only for compiled runs" in refused(capsys, "ppo", "jax:catch", "--seeds", "2")
    assert not list(tmp_path.iterdir())


def test_a_compiled_run_weighs_reprioritizes_and_ranks(tmp_path):
    each = experiment(tmp_path, dqn(prioritized=True, priority_exponent=1.0), 100)
    agent = dataclasses.replace(each.make_agent(each.make_spec()), sgd_steps_per_call=1)
    core, policy, offset = agent.core, agent.policy, agent.replay.priority_offset

    def step(state, sample):
        state, metrics, errors = core.step(state, sample)
        # So different that a later batch's weights differ.
        return state, {**metrics, "weight": jnp.min(sample.weight)}, 7.0 + jnp.arange(len(errors))

    def apply(params, context, observation, state):
        action, state, extras = policy.apply(params, context, observation, state)
        return (context.rank > 0.5).astype(action.dtype), state, extras

    agent = dataclasses.replace(agent, core=dataclasses.replace(core, step=step), policy=policy._replace(apply=apply))
    loop = engine.Loop(agent, engine.environment_of(each), 4, "DQN")
    world, advance = loop.init(*engine.keys_of(each)), compiling.jit(loop.advance)
    for _ in range(2):
        world, _ = advance(world, np.int32(100), np.int32(12))
    assert world.learning.steps > 1
    assert np.isclose(np.asarray(world.replay.weight), 7 + offset).any()
    assert world.learning.metrics["weight"] < 1
    np.testing.assert_array_equal(world.replay.pending.action, np.tile([0, 0, 1, 1], (3, 1)))
