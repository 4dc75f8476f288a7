import dataclasses
import itertools
import json
import os
import signal
from collections.abc import Sequence
from typing import Any

import acme.core
import dm_env
import jax
import numpy as np
import pytest
from toys import Walk, make_walk, toy

from acme_ext import envs, launch
from acme_ext.acting.actor import Actor
from acme_ext.acting.inference import LocalInference
from acme_ext.acting.loop import EnvironmentLoop
from acme_ext.acting.policy import Context
from acme_ext.acting.variables import VariableClient
from acme_ext.builders import DQN
from acme_ext.commands import cli
from acme_ext.commands.record import random_policy, record_run
from acme_ext.data.format import Folder, FolderWriter
from acme_ext.errors import UsageError
from acme_ext.launch import Evaluation, Experiment
from acme_ext.launch.engines.in_process import InProcessEngine
from acme_ext.launch.runs.evaluation import Evaluator, Score
from acme_ext.launch.runs.saving import BestParams
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.utils import loggers
from acme_ext.utils.rundir import RunDirectory

_SPEC = envs.make_spec(Walk(0))


class Source(acme.core.VariableSource):
    """Gives the parameters that it was last told, and counts how often it was asked."""

    def __init__(self, preference: float):
        self.tell(preference)
        self.asked = 0

    def tell(self, preference: float) -> None:
        self.params = {"w": np.tile(np.float32([0, preference]), (11, 1))}

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        assert list(names) == ["policy"]
        self.asked += 1
        return [self.params]


@dataclasses.dataclass
class Recorder:
    """A factory of walks that remembers those it made."""

    made: list[tuple[bool, Walk]] = dataclasses.field(default_factory=list)

    def __call__(self, seed: int, evaluation: bool) -> Walk:
        self.made.append((evaluation, Walk(seed)))
        return self.made[-1][1]


def experiment(factory: Any = make_walk, **fields: Any) -> Experiment:
    return Experiment(toy(), factory, **fields)


def test_repeats_to_the_last_digit_and_follows_the_seed():
    scores = {}
    for name, seed in (("a", 0), ("b", 0), ("other", 1)):
        evaluator = Evaluator(experiment(seed=seed), _SPEC, Source(0.5))
        scores[name] = evaluator.evaluate(7)
        # The second and the third of one evaluator, whatever came between.
        evaluator.evaluate(2)
        np.testing.assert_array_equal(evaluator.evaluate(7).returns, scores[name].returns)
    np.testing.assert_array_equal(scores["a"].returns, scores["b"].returns)
    assert len(set(scores["a"].returns)) == 7
    assert not np.any(scores["a"].returns == scores["other"].returns)


def test_asks_for_fresh_parameters_each_time():
    source = Source(-30.0)
    evaluator = Evaluator(experiment(), _SPEC, source)
    worst = evaluator.evaluate(5).returns
    source.tell(30.0)
    np.testing.assert_allclose(evaluator.evaluate(5).returns, 3 * worst, rtol=1e-5)
    assert source.asked == 2


def test_has_environments_and_seeds_of_its_own():
    recorder = Recorder()
    tried = experiment(recorder, num_envs=4, evaluation=Evaluation(num_envs=3))
    tried.make_environment(4).reset()
    training = list(recorder.made)
    for _ in range(2):
        Evaluator(tried, _SPEC, Source(0.0)).evaluate(6)
    evaluations = recorder.made[4:]
    assert [evaluation for evaluation, _ in training] == [False] * 4
    assert [evaluation for evaluation, _ in evaluations] == [True] * 6
    seeds = [walk.seed for _, walk in recorder.made]
    assert len(set(seeds[:7])) == 7
    assert seeds[4:7] == seeds[7:10]
    assert all(walk.taken == 0 for _, walk in training)


def test_parts_of_a_run_have_seeds_of_their_own_and_share_those_of_evaluation():
    recorder = Recorder()
    tried = experiment(recorder)
    for part, evaluation in itertools.product(range(3), (False, True)):
        tried.make_environment(2, evaluation=evaluation, part=part if not evaluation else 0)
    seeds = {evaluation: [w.seed for e, w in recorder.made if e == evaluation] for evaluation in (False, True)}
    assert len(set(seeds[False])) == 6
    assert len(set(seeds[True])) == 2


@dataclasses.dataclass
class Uneven:
    """Makes environments whose episodes have 1, 2, 3, ... steps, each of another environment."""

    made: int = 0

    def __call__(self, seed: int, evaluation: bool) -> Walk:
        self.made += 1
        return Counting(self.made)


class Counting(Walk):
    """A walk of its number of steps, each of which gives that number."""

    def __init__(self, number: int):
        super().__init__(0, 10)
        self.number = number

    def step(self, action: Any) -> Any:
        timestep = super().step(action)
        if self.position == self.number:
            self.position = self.length
            timestep = timestep._replace(step_type=dm_env.StepType.LAST)
        return timestep

    def reward(self, action: int) -> float:
        return float(self.number)


def test_every_environment_gives_its_share_of_episodes():
    evaluator = Evaluator(experiment(Uneven(), evaluation=Evaluation(num_envs=3)), _SPEC, Source(0.0))
    score = evaluator.evaluate(8)
    # Environments of 1, 2 and 3 steps give 3, 3 and 2 episodes, though the first could have given all before.
    assert score.lengths.tolist() == [1, 1, 1, 2, 2, 2, 3, 3]
    assert score.returns.tolist() == [1, 1, 1, 4, 4, 4, 9, 9]
    assert evaluator.steps > 0


def test_makes_no_more_environments_than_episodes():
    recorder = Recorder()
    score = Evaluator(experiment(recorder, evaluation=Evaluation(num_envs=10)), _SPEC, Source(0.0)).evaluate(2)
    assert len(score.returns) == len(recorder.made) == 2


def test_the_environments_are_closed_even_if_one_raises():
    closed = []

    class Raises(Walk):
        def reward(self, action: int) -> float:
            raise ZeroDivisionError

        def close(self) -> None:
            closed.append(True)

    evaluator = Evaluator(experiment(lambda seed, evaluation: Raises(seed)), _SPEC, Source(0.0))
    with pytest.raises(ZeroDivisionError):
        evaluator.evaluate(3)
    assert closed == [True] * 3


def test_a_score_as_a_row_and_as_json():
    score = Score(np.array([1.0, 3.0]), np.array([5, 7]))
    assert score.row() == {
        "episode_return_mean": 2.0,
        "episode_return_std": 1.0,
        "episode_return_min": 1.0,
        "episode_return_max": 3.0,
        "episode_length_mean": 6.0,
        "episodes": 2,
    }
    assert json.loads(json.dumps(score.to_json()))["returns"] == [1.0, 3.0]


@pytest.fixture
def saved(tmp_path):
    """A run directory as a run of DQN on CartPole leaves it, with random parameters."""
    tried = Experiment(DQN(), "gym:CartPole-v1", seed=3, evaluation=Evaluation(final_episodes=4))
    rundir = RunDirectory(tmp_path / "run")
    rundir.write_config(tried.describe())
    with tried.make_environment(1) as environment:
        core = tried.builder.make_agent(envs.make_spec(environment)).core
    state = core.init(jax.random.key(5))
    CheckpointStore(rundir.checkpoints).save(100, {"learner": state}, {"state": {}})
    return tried, rundir, core.variables(state)


def test_a_run_is_evaluated_as_it_evaluates_itself_and_nothing_is_written(saved):
    tried, rundir, variables = saved
    before = {path: path.stat().st_mtime_ns for path in rundir.path.rglob("*")}

    class Fixed(acme.core.VariableSource):
        def get_variables(self, names: Sequence[str]) -> list[Any]:
            return [variables[name] for name in names]

    with tried.make_environment(1) as environment:
        own = Evaluator(tried, envs.make_spec(environment), Fixed())
    np.testing.assert_array_equal(launch.load(rundir.path).evaluate().returns, own.evaluate(4).returns)
    np.testing.assert_array_equal(launch.load(rundir.path).evaluate(6).returns, own.evaluate(6).returns)
    assert {path: path.stat().st_mtime_ns for path in rundir.path.rglob("*")} == before


def test_a_run_is_evaluated_though_its_replay_is_damaged(saved, capsys):
    tried, rundir, _ = saved
    whole = launch.load(rundir.path).evaluate()
    with tried.make_environment(1) as environment:
        state = tried.builder.make_agent(envs.make_spec(environment)).core.init(jax.random.key(5))
    store = CheckpointStore(rundir.checkpoints)
    path = store.save(
        200, {"learner": state}, {"state": {}}, lambda folder: (folder / "chunks").write_text("1") and None
    )
    (path / "chunks").write_text("")
    np.testing.assert_array_equal(launch.load(rundir.path).evaluate().returns, whole.returns)
    assert store.restore({}).steps == 100


@pytest.mark.parametrize("change", [{"agent": "mine of a script"}, {"environment": {"named": "maze"}}])
def test_a_run_that_only_its_script_knows_is_refused(saved, change):
    _, rundir, _ = saved
    rundir.write_config({**rundir.read_config(), **change})
    with pytest.raises(
        UsageError,
        match=r"can't be loaded by its name: .*(mine of a script|'maze').* From Python",
    ):
        launch.load(rundir.path).evaluate()


def test_a_run_without_a_checkpoint_is_refused(tmp_path):
    rundir = RunDirectory(tmp_path / "run")
    rundir.write_config(Experiment(DQN(), "gym:CartPole-v1").describe())
    with pytest.raises(UsageError, match="has no checkpoint yet"):
        launch.load(rundir.path).evaluate()


def test_what_is_no_run_is_refused_with_the_nearest(saved):
    _, rundir, _ = saved
    with pytest.raises(UsageError, match=r"there is no such folder\. did you mean 'run'\?"):
        launch.load(rundir.path.with_name("rn")).evaluate()


def test_it_can_be_ended_at_any_step_and_is_then_as_good_as_never_begun():
    recorder = Recorder()
    evaluator = Evaluator(experiment(recorder, evaluation=Evaluation(num_envs=2)), _SPEC, Source(0.5))
    steps = 0

    def end() -> None:
        nonlocal steps
        steps += 1
        if steps == 15:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        evaluator.evaluate(4, end)
    # 15 steps of 2 environments, one of which was a reset.
    assert evaluator.steps == 28
    assert [walk.taken for _, walk in recorder.made] == [14, 14]
    again = evaluator.evaluate(4)
    whole = Evaluator(experiment(evaluation=Evaluation(num_envs=2)), _SPEC, Source(0.5)).evaluate(4)
    np.testing.assert_array_equal(again.returns, whole.returns)


class Stuck(Walk):
    """A walk that stays where it began for 40 steps."""

    def step(self, action: Any) -> dm_env.TimeStep:
        if self.position or self.taken >= 40:
            return super().step(action)
        self.taken += 1
        return dm_env.transition(0.0, self.observe())


def test_an_episode_without_an_end_is_told_once(monkeypatch, capsys):
    monkeypatch.setattr("acme_ext.launch.runs.evaluation.LONG", 45)
    evaluator = Evaluator(
        experiment(lambda seed, evaluation: Stuck(seed), evaluation=Evaluation(num_envs=2)), _SPEC, Source(0.5)
    )
    assert evaluator.evaluate(4).lengths.tolist() == [50, 10, 50, 10]
    (line,) = capsys.readouterr().err.splitlines()
    assert "no episode of" in line
    assert "has ended in 45 steps of an evaluation" in line
    assert "give the environment a time limit." in line


def test_the_best_parameters_are_kept_and_judged_on_other_seeds(saved, tmp_path):
    _, rundir, variables = saved
    with pytest.raises(UsageError, match="has no best parameters yet"):
        launch.load(rundir.path, best=True).evaluate()
    worse = jax.tree.map(np.zeros_like, variables["policy"])
    kept = BestParams(rundir)
    for mean, steps, params in ((10.0, 100, worse), (30.0, 200, variables["policy"]), (20.0, 300, worse)):
        kept.offer(mean, steps, lambda params=params: params, None)
    again = BestParams(rundir)  # of the part of the run that goes on
    assert again.mean == 30
    again.offer(25.0, 400, lambda: worse, None)
    found = launch.load(rundir.path, best=True).loaded
    assert found.steps == 200
    jax.tree.map(np.testing.assert_array_equal, found.params, variables["policy"])
    # The last checkpoint has the same parameters: it is the seeds that are others.
    best, last = launch.load(rundir.path, best=True).evaluate(), launch.load(rundir.path).evaluate()
    assert best.returns.tolist() != last.returns.tolist()
    assert best.returns.tolist() == launch.load(rundir.path, best=True).evaluate().returns.tolist()
    data = record_run(rundir.path, tmp_path / "data", steps=20, num_envs=1, best=True)
    assert data.manifest["run_steps"] == 200
    assert data.manifest["seed"] == rundir.read_config()["seed"]


def test_an_evaluation_can_change_how_the_agent_acts(saved):
    _, rundir, _ = saved
    usual = launch.load(rundir.path).evaluate(20)
    random = launch.load(rundir.path, config={"evaluation_epsilon": "1"}).evaluate(20)
    # Parameters drawn at random prefer one of two actions nearly everywhere, and the pole falls at once.
    assert usual.returns.mean() < 12 < 18 < random.returns.mean()
    with pytest.raises(UsageError, match=r"the run's parameters don't fit hidden_sizes=4: only how the agent acts"):
        launch.load(rundir.path, config={"hidden_sizes": "4"})
    with pytest.raises(UsageError, match="DQN has no setting 'evaluation_epsilom'"):
        launch.load(rundir.path, config={"evaluation_epsilom": "1"})
    for setting in ({"learning_rate": 1.0}, {"replay.n_step": "5", "evaluation_epsilon": "1"}):
        with pytest.raises(UsageError, match=r"(learning_rate|replay\.n_step) changes nothing in how the agent acts"):
            launch.load(rundir.path, config=setting)


def test_a_recording_can_change_how_the_agent_acts(saved, tmp_path):
    _, rundir, _ = saved
    usual = record_run(rundir.path, tmp_path / "usual", steps=200, num_envs=1)
    random = record_run(rundir.path, tmp_path / "random", steps=200, num_envs=1, config={"evaluation_epsilon": "1"})
    chosen = [np.concatenate([each.action[:-1] for each in folder.episodes()]) for folder in (usual, random)]
    # Parameters drawn at random prefer one of two actions nearly everywhere.
    assert not 0.25 < chosen[0].mean() < 0.75
    assert 0.25 < chosen[1].mean() < 0.75
    assert random.manifest["config"]["evaluation_epsilon"] == 1
    with pytest.raises(UsageError, match=r"is in the run directory, .*: record to a folder outside it"):
        record_run(rundir.path, rundir.path / "data", steps=200)


def test_random_actions_are_legal():
    environment = envs.make("board:tic_tac_toe", num_envs=8)
    policy = random_policy(envs.make_spec(environment))
    inference = LocalInference(policy, VariableClient(Source(0.0)), jax.random.key(0), 8)
    loop = EnvironmentLoop(environment, Actor(inference, num_envs=8), should_update=False)
    for _ in range(40):
        loop.step()
    assert loop.episodes > 40
    mask = np.tile(np.array([False, True, False, True]), (4000, 1))
    context = Context(jax.random.split(jax.random.key(1), 4000), 0, np.zeros(4000), np.zeros(4000))
    action, _, _ = policy.apply((), context, {"x": np.zeros((4000, 1)), "action_mask": mask}, ())
    counts = np.bincount(action, minlength=4)
    assert counts[[0, 2]].tolist() == [0, 0]
    np.testing.assert_allclose(counts[[1, 3]] / 4000, 0.5, atol=0.05)


def test_a_recording_that_is_interrupted_keeps_the_episodes_that_have_ended(saved, tmp_path, monkeypatch):
    _, rundir, _ = saved
    add = FolderWriter.add

    def add_and_interrupt(writer, episode):
        add(writer, episode)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(FolderWriter, "add", add_and_interrupt)
    out = tmp_path / "data"
    assert cli.main(["record", str(rundir.path), "-o", str(out), "--steps", "10_000_000", "--num-envs", "1"]) == 130
    assert len(Folder(out).returns) >= 1


def test_the_config_of_another_program_is_no_run(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    for command in (["evaluate"], ["watch", "--once"]):
        assert cli.main([command[0], str(tmp_path), *command[1:]]) == 2
    with pytest.raises(UsageError, match=r"is not a run directory: its config.json is not that of a run"):
        launch.load(tmp_path)


def test_damaged_best_parameters_give_way_to_the_next(saved):
    _, rundir, variables = saved
    BestParams(rundir).offer(30.0, 200, lambda: variables["policy"], None)
    (path,) = rundir.best.rglob("policy.npz")
    path.write_bytes(b"")
    again = BestParams(rundir, report=lambda _: None)
    again.offer(5.0, 300, lambda: variables["policy"], None)
    assert BestParams(rundir).mean == 5
    assert launch.load(rundir.path, best=True).loaded.steps == 300


def test_an_evaluation_is_given_the_standing_and_the_best_is_kept(tmp_path, monkeypatch):
    asked, evaluate = [], Evaluator.evaluate

    def asking(self, episodes, on_step, *, statistics=None):
        asked.append(statistics)
        return evaluate(self, episodes, on_step)

    monkeypatch.setattr(InProcessEngine, "_statistics", lambda self: [[3.0]])
    monkeypatch.setattr(Evaluator, "evaluate", asking)
    evaluation = Evaluation(every=20, episodes=1, final_episodes=1, num_envs=1)
    launch.run(
        Experiment(toy(learning_rate=30.0), make_walk, steps=60, run_dir=tmp_path, evaluation=evaluation), quiet=True
    )
    assert asked == [[[3.0]]] * 3
    means = loggers.read_csv(tmp_path / "logs/evaluator.csv")["episode_return_mean"]
    assert len(set(means)) > 1
    assert BestParams(RunDirectory.open(tmp_path)).mean == pytest.approx(max(means))
