"""A run that stopped, in whatever way, goes on where it was; what can't go on is refused and left as it is."""

import dataclasses
import errno
import gc
import json
import os
import signal
from pathlib import Path
from typing import Any

import dm_env
import numpy as np
import pytest
from dm_env import specs
from toys import Toy, ToyConfig, Walk, make_walk, toy

from acme_ext import builders, envs, launch
from acme_ext.acting.variables import POLICY
from acme_ext.config.values import named
from acme_ext.errors import RunError, UsageError
from acme_ext.launch import Checkpoints, Evaluation, Experiment, Result, runner
from acme_ext.launch.engines import in_process
from acme_ext.launch.exporting import snapshots
from acme_ext.launch.runs import directory
from acme_ext.launch.runs.evaluation import Evaluator
from acme_ext.learning import checkpoints
from acme_ext.replay.reverb.store import ReverbStore
from acme_ext.utils import loggers
from acme_ext.utils.rundir import RunDirectory

pytestmark = pytest.mark.usefixtures("no_figures")

_SHORT = Evaluation(every=0, final_episodes=1, num_envs=1)
_ALWAYS = Checkpoints(every_s=1e-9)  # after every step
_NEVER = Checkpoints(every_s=0)  # but at the end


def before_release(value: str) -> Any:
    """A parameter that is left to the tests before a release."""
    return pytest.param(value, marks=pytest.mark.release)


def run(folder: Path, builder: Any = None, *, fresh: bool = False, **fields: Any) -> Result:
    fields = {"environment": make_walk, "evaluation": _SHORT, "checkpoints": _NEVER, **fields}
    experiment = Experiment(builder or toy(), run_dir=str(folder), **fields)
    return launch.run(experiment, fresh=fresh, quiet=True)


def latest(folder: Path, builder: Any = None) -> checkpoints.Restored:
    """Returns a run's latest good checkpoint."""
    core = (builder or toy()).make_agent(envs.make_spec(Walk(0))).core
    store = checkpoints.CheckpointStore(folder / "checkpoints", report=print)
    restored = store.restore({"learner": core.abstract_state()})
    assert restored is not None
    return restored


def column(folder: Path, label: str, name: str = "environment_steps") -> list[float]:
    return loggers.read_csv(folder / f"logs/{label}.csv")[name].tolist()


def contents(folder: Path) -> dict[str, bytes | None]:
    """Returns everything below a folder, without the lock, which is taken to be refused."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if path.name != "lock"
    }


# By the limit: one sample an insert from 4 inserts on and 32 ahead, in batches of 4.
def learner_steps(inserts: int) -> int:
    return (inserts - 4 + 32) // 4


def test_a_finished_run_given_again_is_evaluated_and_not_trained(tmp_path, counts):
    evaluation = Evaluation(every=20, episodes=1, final_episodes=2, num_envs=1)
    first = run(tmp_path, steps=40, evaluation=evaluation)
    before = contents(tmp_path)
    again = run(tmp_path, steps=40, evaluation=evaluation)
    assert (again.environment_steps, again.learner_steps) == (40, first.learner_steps) == (40, learner_steps(40))
    np.testing.assert_array_equal(again.score.returns, first.score.returns)
    assert column(tmp_path, "evaluator") == [20, 40]
    assert counts.saved[0] == counts.saved[1]
    after = contents(tmp_path)
    assert {name for name in after if name.startswith("logs")} == {name for name in before if name.startswith("logs")}
    assert after["logs/actor.csv"] == before["logs/actor.csv"]
    assert after["logs/learner.csv"] == before["logs/learner.csv"]
    assert after["config.json"] == before["config.json"]


def test_a_finished_run_given_more_steps_goes_on(tmp_path, counts):
    evaluation = Evaluation(every=20, episodes=1, final_episodes=2, num_envs=1)
    made: list[tuple[bool, int]] = []

    def factory(seed: int, evaluation: bool) -> Walk:
        made.append((evaluation, seed))
        return Walk(seed)

    run(tmp_path, steps=40, evaluation=evaluation, environment=named("mine", factory))
    first_part = {seed for for_evaluation, seed in made if not for_evaluation}
    made.clear()
    more = run(tmp_path, steps=90, evaluation=evaluation, environment=named("mine", factory))
    assert more.environment_steps == 90
    # At most one call's batch was fetched before the end and is lost to the part after it.
    assert learner_steps(90) - 1 <= more.learner_steps <= learner_steps(90)
    assert [inserted for inserted, _ in counts.saved] == [40, 90]
    assert column(tmp_path, "evaluator") == [20, 40, 60, 80, 90]
    assert latest(tmp_path).info["state"]["actor"]["steps"] == 90  # exploration schedules continue too
    # Four episodes of 10 steps in the first part, and then five.
    assert column(tmp_path, "actor") == [10, 20, 30, 40, 50, 60, 70, 80, 90]
    wall = column(tmp_path, "actor", "wall_time_s")
    assert wall == sorted(wall)
    assert json.loads((tmp_path / "config.json").read_text())["run"]["steps"] == 90
    # Other episodes than the first part's; the environment it would begin with is only asked for its specs.
    assert {seed for for_evaluation, seed in made if not for_evaluation} - first_part
    assert made[0] == (False, *first_part)
    assert len({seed for for_evaluation, seed in made if for_evaluation}) == 1
    assert len(set(column(tmp_path, "actor", "episode_return"))) == 9


def test_evaluations_may_become_more_frequent(tmp_path):
    for steps, every in ((40, 1000), (90, 20)):
        run(tmp_path, steps=steps, evaluation=Evaluation(every=every, episodes=1, final_episodes=1, num_envs=1))
    assert column(tmp_path, "evaluator") == [40, 60, 80, 90]


def test_a_run_may_leave_its_replay_out_of_its_checkpoints(tmp_path, counts):
    saving = Checkpoints(every_s=0, replay=False)
    run(tmp_path, steps=20, checkpoints=saving)
    assert not (tmp_path / "checkpoints/000000000020/replay").exists()
    result = run(tmp_path, steps=60, checkpoints=saving)
    # The table begins anew, and its limit with it.
    assert (result.environment_steps, result.learner_steps) == (60, learner_steps(20) + learner_steps(40))
    assert counts.saved == []


@pytest.mark.parametrize(("every_s", "least", "most"), [(0, 1, 1), (1e9, 1, 1), (1e-9, 20, 24)])
def test_no_seconds_between_checkpoints_mean_none_but_at_the_end(tmp_path, counts, monkeypatch, every_s, least, most):
    monkeypatch.setattr(runner, "_TICK_S", 0.0)
    run(tmp_path, steps=20, checkpoints=Checkpoints(every_s=every_s))
    assert least <= len(counts.saved) <= most


def test_the_time_of_all_parts_adds_up(tmp_path, monkeypatch):
    run(tmp_path, steps=20)
    first = latest(tmp_path).info["state"]["wall_time_s"]
    run(tmp_path, steps=40)
    second = latest(tmp_path).info["state"]["wall_time_s"]
    assert 0 < first < min(column(tmp_path, "actor", "wall_time_s")[2:]) <= second


def test_fresh_starts_anew(tmp_path):
    run(tmp_path, steps=40)
    (tmp_path / "checkpoints/notes").mkdir()
    result = run(tmp_path, steps=20, seed=5, fresh=True)
    assert (result.environment_steps, result.learner_steps) == (20, learner_steps(20))
    assert column(tmp_path, "actor") == [10, 20]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000000000020"]
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 5


class FaultError(Exception):
    """An environment's own."""


@dataclasses.dataclass
class Breaks:
    """Makes walks that raise at a training step, until they are mended."""

    at: int
    mended: bool = False

    def __call__(self, seed: int, evaluation: bool) -> Walk:
        walk, at = Walk(seed), self.at

        class Broken(Walk):
            def reward(self, action: int) -> float:
                if self.taken == at:
                    raise FaultError("the arm fell off")
                return super().reward(action)

        return walk if evaluation or self.mended else Broken(seed)


def test_an_environment_that_raises_costs_nothing_that_was_learned(tmp_path, counts):
    factory = Breaks(26)
    with pytest.raises(FaultError, match="the arm fell off"):
        run(tmp_path, steps=60, environment=named("mine", factory))
    saved = latest(tmp_path)
    assert saved.steps == 25
    assert saved.info["state"]["counts"].items() >= {"environment_steps": 25, "environment_episodes": 2}.items()
    factory.mended = True
    result = run(tmp_path, steps=60, environment=named("mine", factory))
    assert result.environment_steps == 60
    inserted, _ = counts.saved[-1]
    # A step is written when the next is there, and those on their way to the table are not waited for.
    assert 34 <= inserted <= 59
    assert learner_steps(inserted) - 2 <= result.learner_steps <= learner_steps(inserted)
    assert column(tmp_path, "actor") == [10, 20, 35, 45, 55]


def test_an_environment_that_raises_in_its_first_step_leaves_a_run_that_begins(tmp_path):
    factory = Breaks(1)
    with pytest.raises(FaultError):
        run(tmp_path, steps=10, environment=named("mine", factory))
    factory.mended = True
    assert run(tmp_path, steps=10, environment=named("mine", factory)).environment_steps == 10


def test_a_loss_that_is_no_number_stops_the_run_and_is_not_saved(tmp_path):
    builder = toy(nan_at=14)
    with pytest.raises(RunError) as stop:
        run(tmp_path, builder, steps=100, checkpoints=_ALWAYS)
    assert str(stop.value) == (
        "the loss, gradient or TD error was not finite at learner step 14: the run stops. "
        f"Its checkpoint of step {latest(tmp_path, builder).steps} stays."
    )
    saved = latest(tmp_path, builder)
    assert 0 < saved.info["state"]["counts"]["learner_steps"] < 14
    assert np.all(np.isfinite(saved.trees["learner"].params["w"]))

    class Saved(Evaluator.__mro__[-1]):  # any source will do
        def get_variables(self, names: Any) -> list[Any]:
            assert names == [POLICY]
            return [saved.trees["learner"].params]

    score = Evaluator(Experiment(builder, make_walk), envs.make_spec(Walk(0)), Saved()).evaluate(3)
    assert np.all(np.isfinite(score.returns))
    # Nothing else comes of it when it is tried again, and the good checkpoint still stands.
    with pytest.raises(RunError, match="learner step 14"):
        run(tmp_path, builder, steps=100)
    assert latest(tmp_path, builder).steps >= saved.steps


def test_a_loss_that_is_no_number_before_the_first_checkpoint_promises_none(tmp_path):
    with pytest.raises(RunError) as stop:
        run(tmp_path, toy(nan_at=1), steps=100)
    assert str(stop.value) == (
        "the loss, gradient or TD error was not finite at learner step 1: the run stops. It has no checkpoint yet."
    )
    assert not list((tmp_path / "checkpoints").iterdir())


@pytest.mark.parametrize("reward", [float("nan"), None])
def test_a_reward_that_is_no_number_is_the_environments_and_what_was_learned_is_saved(tmp_path, reward):
    class Wrong(Walk):
        def reward(self, action: int) -> Any:
            return reward if self.taken == 26 else super().reward(action)

    def make_wrong(seed: int, evaluation: bool) -> Walk:
        return Wrong(seed)

    with pytest.raises(RunError, match=f"make_wrong delivered a reward of {reward}.*; its spec says float32 of shape"):
        run(tmp_path, steps=60, environment=named("make_wrong", make_wrong))
    assert latest(tmp_path).steps == 25


def test_a_disk_that_fills_up_keeps_the_older_checkpoint(tmp_path, monkeypatch):
    run(tmp_path, steps=20)
    write = checkpoints._write_npz

    def full(path: Path, arrays: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(checkpoints, "_write_npz", full)
    with pytest.raises(RunError) as stop:
        run(tmp_path, steps=40)
    assert str(stop.value).endswith("is full: free some space, then give the same command again.")
    assert latest(tmp_path).steps == 20

    monkeypatch.setattr(checkpoints, "_write_npz", write)
    assert run(tmp_path, steps=40).environment_steps == 40
    assert column(tmp_path, "actor") == [10, 20, 30, 40]
    assert column(tmp_path, "evaluator") == [20, 40]


@pytest.mark.parametrize("damage", [before_release("truncated"), "altered", before_release("missing"), "replay"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(tmp_path, capsys, damage):
    run(tmp_path, steps=20)
    run(tmp_path, steps=40)
    file = tmp_path / "checkpoints/000000000040/learner.npz"
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-20])
    elif damage == "altered":
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    elif damage == "missing":
        file.unlink()
    else:
        (largest,) = (tmp_path / "checkpoints/000000000040/replay").glob("**/chunks.tfrecord")
        largest.write_bytes(largest.read_bytes()[:-1])
    capsys.readouterr()
    result = run(tmp_path, steps=60)
    told = capsys.readouterr().out
    assert "000000000040 is damaged, so the one before it is tried: " in told
    assert f"resuming {tmp_path} at step 20." in told
    assert result.environment_steps == 60
    assert column(tmp_path, "actor") == [10, 20, 30, 40, 50, 60]
    assert column(tmp_path, "evaluator") == [20, 60]


def test_a_run_whose_checkpoints_are_all_damaged_is_left_alone(tmp_path):
    run(tmp_path, steps=20)
    (tmp_path / "checkpoints/000000000020/learner.npz").write_bytes(b"")
    before = contents(tmp_path)
    with pytest.raises(RunError, match=r"every checkpoint in .* is damaged: start anew in another directory"):
        run(tmp_path, steps=20)
    assert contents(tmp_path) == before


def test_priorities_come_back(tmp_path, monkeypatch):
    seen = []

    class Recorded(ReverbStore):
        def __init__(self, *args: Any, **kwargs: Any):
            super().__init__(*args, **kwargs)
            seen.append(self.priorities())

        def checkpoint(self, folder: Path) -> None:
            super().checkpoint(folder)
            seen.append(self.priorities())

        def priorities(self) -> dict[int, float]:
            if not self.client.server_info()["transitions"].current_size:
                return {}
            return {s[0].info.key: s[0].info.priority for s in self.client.sample("transitions", 500)}

    monkeypatch.setattr(
        in_process,
        "open_store",
        lambda replay, *_, scratch, restore, **__: Recorded(replay, scratch=scratch, restore=restore),
    )
    builder = toy(order="prioritized", samples_per_insert=None)
    run(tmp_path, builder, steps=30)
    run(tmp_path, builder, steps=30)
    empty, saved, restored, _ = seen
    assert not empty
    # The learner's are 2 and more, by the place; those it has not seen keep their first, 1.
    assert len(restored) == len(saved) == 30
    assert set(restored.values()) >= {1.0, 2.0, 5.0}
    # What the learner had said at last may have reached the table after it was saved.
    late = {key for key, priority in restored.items() if priority != saved[key]}
    assert all(restored[key] == 1.0 for key in late)
    assert len(late) <= 16


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"num_envs": 2}, "num_envs is 1 there and 2 here"),
        ({"builder": toy(batch_size=8, max_size=50)}, "config.batch_size is 4 there and 8 here; config.max_size is"),
        ({"builder": builders.make("dqn")}, "agent is 'toys:Toy' there and 'dqn' here; choose another directory"),
        ({"environment": named("mine", Breaks(9))}, "environment is 'py:toys:make_walk' there and"),
        ({"environment": "gym:CartPole-v1"}, "environment is 'py:toys:make_walk' there and 'gym:CartPole-v1' here"),
    ],
)
def test_another_run_in_the_same_directory_is_refused_by_the_fields(tmp_path, change, told):
    _as_if_run(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(UsageError) as refusal:
        run(tmp_path, **change)
    assert f"{tmp_path} holds another run: {told}" in str(refusal.value)
    assert str(refusal.value).endswith("choose another directory, or start anew (--fresh).")
    assert contents(tmp_path) == before


def _as_if_run(folder: Path) -> None:
    rundir = RunDirectory(folder)
    rundir.write_config(Experiment(toy(), make_walk).describe())


def test_a_start_that_was_killed_is_no_stranger(tmp_path):
    for name in ("lock", ".probe.12", ".config.json.12.tmp"):
        (tmp_path / name).touch()
    directory.check_directory(Experiment(toy(), make_walk, run_dir=str(tmp_path)))


def test_the_config_is_the_last_that_a_fresh_start_deletes(tmp_path, monkeypatch):
    _as_if_run(tmp_path)

    def stop(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(directory.shutil, "rmtree", stop)
    with pytest.raises(KeyboardInterrupt):
        directory.prepare(Experiment(toy(), make_walk, run_dir=str(tmp_path)), fresh=True)
    assert RunDirectory.open(tmp_path).exists_run()


def test_what_is_refused_late_has_changed_nothing(tmp_path, monkeypatch):
    _as_if_run(tmp_path / "run")
    before = contents(tmp_path)

    def refuse(*_):
        raise UsageError("can't be exported")

    monkeypatch.setattr(snapshots, "trace_run", refuse)
    for told, fields in (
        ("num_devices is 99", {"num_devices": 99}),
        ("can't be exported", {"snapshot_every": 5}),
        ("neither empty nor", {"run_dir": str(tmp_path), "record": str(tmp_path / "data")}),
    ):
        options = {name: fields.pop(name) for name in ("snapshot_every", "record") if name in fields}
        experiment = Experiment(toy(), make_walk, **{"run_dir": str(tmp_path / "run"), "steps": 900, **fields})
        with pytest.raises(UsageError, match=told):
            launch.run(experiment, quiet=True, fresh=True, **options)
        assert contents(tmp_path) == before


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", ["thesis.tex", "config.json"])
def test_a_folder_of_something_else_is_refused_and_not_emptied(tmp_path, name, fresh):
    (tmp_path / name).write_text('{"model_type": "bert"}')
    before = contents(tmp_path)
    with pytest.raises(UsageError, match="is neither empty nor a run directory: choose another"):
        run(tmp_path, fresh=fresh)
    assert contents(tmp_path) == before
    assert not (tmp_path / "lock").exists()


def test_a_home_directory_is_the_same_for_the_checks_and_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    _as_if_run(tmp_path / "r")
    assert Experiment(toy(), make_walk, run_dir="~/r").directory == tmp_path / "r"
    with pytest.raises(UsageError, match="holds another run: seed is 0 there and 1 here"):
        run("~/r", seed=1)


def test_a_fresh_run_unlinks_a_linked_folder(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "mine").write_text("x")
    _as_if_run(tmp_path / "r")
    (tmp_path / "r" / "best").symlink_to(tmp_path / "disk")
    directory.prepare(Experiment(toy(), make_walk, run_dir=tmp_path / "r"), fresh=True)
    assert not (tmp_path / "r" / "best").exists()
    assert (tmp_path / "disk" / "mine").exists()


def test_a_run_that_goes_beyond_its_end_has_no_final_evaluation(tmp_path):
    _as_if_run(tmp_path)
    rundir = RunDirectory.open(tmp_path)
    for steps, there in ((100, True), (101, False)):
        rundir.write_evaluation({"environment_steps": 100})
        directory.prepare(Experiment(toy(), make_walk, steps=steps, run_dir=tmp_path))
        assert rundir.evaluation.is_file() == there


def test_a_config_that_cannot_be_read_is_refused_and_not_emptied(tmp_path):
    (tmp_path / "config.json").write_text('{"agent": ')
    for fresh in (False, True):
        with pytest.raises(UsageError, match=r"config\.json is damaged"):
            run(tmp_path, fresh=fresh)
    assert contents(tmp_path) == {"config.json": b'{"agent": '}


def test_a_directory_that_another_run_holds_is_refused(tmp_path):
    _as_if_run(tmp_path)
    with RunDirectory.open(tmp_path).lock():
        before = contents(tmp_path)
        with pytest.raises(UsageError, match=r"another run holds .* \(process \d+ on .*\): wait for its end"):
            run(tmp_path, fresh=True)
        assert contents(tmp_path) == before


@pytest.mark.parametrize("folder", ["file/run", "file", "/proc/nowhere/run"])
def test_where_nothing_can_be_written_is_refused(tmp_path, folder):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=r"can't be written|is a file: choose a folder"):
        run(tmp_path / folder)
    assert contents(tmp_path) == {"file": b"x"}


class _Interrupted(Walk):
    """Sends this process SIGINT in an evaluation's step of a number."""

    at = 0

    def step(self, action: Any) -> dm_env.TimeStep:
        if self.taken + 1 == _Interrupted.at:
            _Interrupted.at = 0
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(action)


def _make_interrupted(seed: int, evaluation: bool) -> Walk:
    return _Interrupted(seed) if evaluation else Walk(seed)


def _interrupt_unseen() -> None:
    """Sends SIGINT where an exception of its handler would be printed and lost."""

    def in_callback(phase: str, info: object) -> None:
        if phase == "start":
            os.kill(os.getpid(), signal.SIGINT)

    gc.callbacks.append(in_callback)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(in_callback)


@pytest.mark.parametrize("moment", [before_release("specs"), "core", before_release("learner"), "saving"])
def test_an_interrupt_at_any_moment_is_a_stop_after_a_save(tmp_path, monkeypatch, moment):
    left = [moment]

    def now(here: str) -> None:
        if here in left:
            left.remove(here)
            _interrupt_unseen()

    class Interrupted(Toy):
        def make_core(self, spec: Any, networks: Any) -> Any:
            now("core")
            core = super().make_core(spec, networks)

            def step(state: Any, sample: Any) -> Any:
                now("learner")  # in the midst of the check of its shapes
                return core.step(state, sample)

            return dataclasses.replace(core, step=step)

    class Asked(Walk):
        def action_spec(self) -> specs.DiscreteArray:
            now("specs")
            return super().action_spec()

    write = checkpoints._write_npz

    def slow_write(path: Path, arrays: Any) -> None:
        now("saving")
        write(path, arrays)

    def make_asked(seed: int, evaluation: bool) -> Walk:
        return Asked(seed)

    monkeypatch.setattr(checkpoints, "_write_npz", slow_write)
    saving = Checkpoints(every_s=0.05)
    result = run(
        tmp_path, Interrupted(ToyConfig()), steps=10**7, environment=named("make_asked", make_asked), checkpoints=saving
    )
    assert not left
    assert result.stopped_by == signal.SIGINT
    assert result.environment_steps < 10**7
    assert latest(tmp_path).steps == result.environment_steps
    assert (result.environment_steps == 0) == (moment != "saving")
    more = result.environment_steps + 20
    again = run(tmp_path, Interrupted(ToyConfig()), steps=more, environment=named("make_asked", make_asked))
    assert again.environment_steps == more


@pytest.mark.parametrize("at_the_end", [False, True])
def test_an_interrupted_evaluation_is_none_and_is_made_when_the_run_goes_on(tmp_path, at_the_end):
    evaluation = Evaluation(every=0 if at_the_end else 20, episodes=1000, final_episodes=1000, num_envs=1)
    fields: dict[str, Any] = {"environment": _make_interrupted, "steps": 30, "evaluation": evaluation}
    _Interrupted.at = 25
    result = run(tmp_path, **fields)
    assert result.stopped_by == signal.SIGINT
    assert result.environment_steps == (30 if at_the_end else 20)
    assert not (tmp_path / "logs/evaluator.csv").is_file()
    assert not (tmp_path / "evaluation.json").is_file()
    fields["evaluation"] = dataclasses.replace(evaluation, episodes=2, final_episodes=2)
    result = run(tmp_path, **fields)
    assert result.stopped_by is None
    assert column(tmp_path, "evaluator") == ([30] if at_the_end else [20, 30])  # at the step where it was due
