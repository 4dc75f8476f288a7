"""The loop of one process: it ends by itself and learns exactly as often as the limit allows, whatever the limit."""

import dataclasses
import math
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import dm_env
import numpy as np
import pytest
from dm_env import specs
from toys import Walk, make_walk, toy

from acme_ext import launch
from acme_ext.builders import DQN
from acme_ext.config.values import named
from acme_ext.errors import UsageError
from acme_ext.launch import Evaluation, Experiment, Result, session
from acme_ext.launch.runs import console
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.replay.reverb import dataset
from acme_ext.replay.reverb.store import ReverbTable
from acme_ext.utils import loggers
from acme_ext.utils.rundir import RunDirectory

pytestmark = pytest.mark.usefixtures("no_figures")

_SHORT = Evaluation(every=0, final_episodes=1, num_envs=1)


def run(folder: Path, builder: Any, **fields: Any) -> Result:
    fields = {"environment": make_walk, "evaluation": _SHORT, **fields}
    return launch.run(Experiment(builder, run_dir=str(folder), **fields), quiet=True)


def params(folder: Path, builder: Any, environment: dm_env.Environment) -> Any:
    """Returns the parameters that a run's latest checkpoint holds."""
    from acme_ext import envs

    core = builder.make_agent(envs.make_spec(environment)).core
    restored = CheckpointStore(RunDirectory.open(folder).checkpoints).restore({"learner": core.abstract_state()})
    assert restored is not None
    return restored.trees["learner"].params


def allowed(inserts: int, ratio: str, min_size: int, tolerance: str) -> int:
    """Samples that may be drawn in all, in exact arithmetic."""
    if inserts < min_size:
        return 0
    return max(0, math.floor((inserts - min_size) * Fraction(ratio) + Fraction(tolerance)))


# Every ratio with the smallest and the default tolerance and with both batch sizes; the numbers of environments and of
# fused steps go through their values meanwhile.
_LIMITS = [
    pytest.param(
        *(ratio, smallest, batch, (1, 8, 32)[i % 3], (1, 4)[i // 3 % 2]), marks=pytest.mark.release if i % 4 else ()
    )
    for i, (ratio, smallest, batch) in enumerate(
        (ratio, smallest, batch) for ratio in ("0.1", "1", "8", "64") for smallest in (True, False) for batch in (4, 32)
    )
]


@pytest.mark.parametrize(("ratio", "smallest", "batch", "num_envs", "fused"), _LIMITS)
def test_learns_exactly_as_often_as_a_ratio_allows(tmp_path, counts, ratio, smallest, batch, num_envs, fused):
    tolerance = str(max(1.0, float(ratio)) * (1 if smallest else 32))
    builder = toy(
        batch_size=batch,
        samples_per_insert=float(ratio),
        min_size=10,
        tolerance=float(tolerance) if smallest else None,
        sgd_steps_per_call=fused,
    )
    budget = {"0.1": 1_500, "64": 60}.get(ratio, 150)
    result = run(tmp_path, builder, steps=budget, num_envs=num_envs)

    assert budget <= result.environment_steps < budget + num_envs
    block = min(num_envs, max(1, batch // 8))  # transitions in an item, of which the table's limit is
    items, least = result.environment_steps // block, -(-10 // block)
    most = block * allowed(items, ratio, least, str(max(Fraction(tolerance) / block, 1, Fraction(ratio))))
    calls = most // (batch * fused)
    assert calls > 0
    assert result.learner_steps == calls * fused
    ((inserted, sampled),) = counts.saved
    assert inserted == items * block
    assert result.learner_steps * batch <= sampled <= most


@pytest.mark.parametrize(("steps", "learner_steps"), [(1_281, 39), (1_291, 40)])
def test_ends_where_the_limit_is_reached_to_the_last_sample(tmp_path, steps, learner_steps):
    # (steps - 1) / 10 + 32 is 160 and 161, of which Reverb's floating point allows one less.
    result = run(tmp_path, toy(batch_size=4, samples_per_insert=0.1, min_size=1), steps=steps)
    assert result.learner_steps == learner_steps


@pytest.mark.parametrize(("num_envs", "fused", "batch"), [(1, 1, 4), (8, 4, 32)])
def test_without_a_ratio_learns_once_a_step_from_the_smallest_size_on(tmp_path, counts, num_envs, fused, batch):
    builder = toy(samples_per_insert=None, min_size=24, batch_size=batch, sgd_steps_per_call=fused)
    result = run(tmp_path, builder, steps=80, num_envs=num_envs, environment=named("long walk", LongWalk()))
    # The writer hands a step's rows over when the next step is there. So of the T steps of all environments the last
    # T - 24 / num_envs find the smallest size, and once more it learns at the end.
    ticks = 80 // num_envs
    assert result.learner_steps == fused * (ticks - 24 // num_envs + 1)
    assert counts.saved[-1][0] == 80


@dataclasses.dataclass(frozen=True)
class LongWalk:
    """Makes walks that don't end in a test."""

    def __call__(self, seed: int, evaluation: bool) -> Walk:
        return Walk(seed, 100)


@pytest.mark.reverb
@pytest.mark.parametrize("num_envs", [1, 8, 32])
def test_a_queue_smaller_than_a_batch_gives_each_item_once(tmp_path, counts, num_envs):
    builder = toy(order="queue", max_size=3, batch_size=8, sgd_steps_per_call=2)
    result = run(tmp_path, builder, steps=100, num_envs=num_envs)
    assert result.learner_steps == 2 * (result.environment_steps // 16)
    inserted, sampled = counts.saved[-1]
    assert inserted == result.environment_steps
    assert inserted - 3 <= sampled <= inserted


@pytest.mark.reverb
@pytest.mark.parametrize("order", ["uniform", "queue"])
def test_samples_that_never_come_cost_a_call_and_not_the_run(tmp_path, capfd, monkeypatch, order):
    monkeypatch.setattr(dataset, "_WAITS_A_LOOK", 5)
    make = ReverbTable.batches

    def batches(self, *args, **options):
        # Somebody else draws some, which count as drawn and don't come.
        threading.Thread(target=lambda: list(self.client.sample("transitions", 3)), daemon=True).start()
        time.sleep(0.2)
        return make(self, *args, **options)

    monkeypatch.setattr(ReverbTable, "batches", batches)
    result = run(tmp_path, toy(order=order, min_size=4, batch_size=4, samples_per_insert=1.0, tolerance=1.0), steps=40)
    calls = {"uniform": (40 - 4 + 1) // 4, "queue": 40 // 4}[order]
    assert result.learner_steps == calls - 1
    assert capfd.readouterr().out.count("a learner call is skipped") == 1


def test_never_learns_before_the_smallest_size(tmp_path, counts):
    result = run(tmp_path, toy(min_size=31), steps=30)
    assert result.learner_steps == 0
    assert counts.saved == [(30, 0)]
    assert not (tmp_path / "logs/learner.csv").exists()


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"samples_per_insert": 8.0, "tolerance": 7.9}, "tolerance"),
        ({"min_size": 1_001}, "min_size"),
    ],
)
def test_a_limit_that_could_block_is_refused_before_anything_is_written(tmp_path, config, field):
    with pytest.raises(UsageError, match=field):
        run(tmp_path / "run", toy(**config), steps=10)
    assert not (tmp_path / "run").exists()


def test_a_stalled_run_says_what_the_limiter_waits_for(tmp_path, monkeypatch):
    told = threading.Event()
    messages = []

    def report(message: str) -> None:
        if "holds 3" in message and not told.is_set():  # before, it may only have been slow to begin
            messages.append(message)
            told.set()

    class Stalls(Walk):
        def reward(self, action: int) -> float:
            if self.taken == 5:
                told.wait(30)
            return 0.0

    monkeypatch.setattr(session, "PATIENCE_S", 0.2)
    monkeypatch.setattr(console, "print", report, raising=False)
    result = run(
        tmp_path, toy(min_size=10), steps=20, environment=named("stalls", lambda seed, evaluation: Stalls(seed))
    )
    assert result.environment_steps == 20
    assert messages == [
        "nothing has moved for a while: table 'transitions' holds 3 of 1000 items, 3 inserted and 0 sampled, "
        "sampling waits for 10 items"
    ]


def logged(folder: Path) -> dict[str, dict[str, list[float]]]:
    rows = {label: loggers.read_csv(folder / f"logs/{label}.csv") for label in ("actor", "learner", "evaluator")}
    return {label: {k: v.tolist() for k, v in log.items() if k != "wall_time_s"} for label, log in rows.items()}


_ON_POLICY = {"order": "queue", "max_size": 16, "batch_size": 8}


def test_an_on_policy_run_repeats_to_the_last_digit(tmp_path):
    fields = {"steps": 200, "num_envs": 4, "evaluation": Evaluation(50, 3, 4, num_envs=2)}
    results, logs, learned = [], [], []
    for name, seed in (("a", 0), ("b", 0), ("other", 1)):
        builder = toy(**_ON_POLICY)
        results.append(run(tmp_path / name, builder, seed=seed, **fields))
        logs.append(logged(tmp_path / name))
        learned.append(params(tmp_path / name, builder, Walk(0))["w"])

    assert results[0].learner_steps == 25
    assert logs[0] == logs[1]
    assert len(logs[0]["evaluator"]["environment_steps"]) == 4
    assert np.any(learned[0])
    np.testing.assert_array_equal(learned[0], learned[1])
    np.testing.assert_array_equal(results[0].score.returns, results[1].score.returns)
    assert np.any(learned[0] != learned[2])
    assert logs[0]["actor"]["episode_return"] != logs[2]["actor"]["episode_return"]
    assert np.any(results[0].score.returns != results[2].score.returns)


def test_evaluating_does_not_disturb_training(tmp_path):
    for name, every in (("often", 20), ("never", 0)):
        evaluation = Evaluation(every=every, episodes=2, final_episodes=1, num_envs=2)
        run(tmp_path / name, toy(**_ON_POLICY), steps=100, num_envs=2, evaluation=evaluation)
    often, never = logged(tmp_path / "often"), logged(tmp_path / "never")
    assert often["actor"] == never["actor"]
    assert often["learner"] == never["learner"]
    assert often["evaluator"]["environment_steps"] == [20, 40, 60, 80, 100]
    assert never["evaluator"]["environment_steps"] == [100]


class Constant(Walk):
    """Nothing can be seen of the position, and each step gives 1."""

    def observe(self) -> np.ndarray:
        return np.ones(1, np.float32)

    def observation_spec(self) -> specs.Array:
        return specs.Array((1,), np.float32)

    def reward(self, action: int) -> float:
        return 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truncates", "n_step", "value"),
    [
        # Q = 1 / (1 - 0.9): what was cut short goes on for ever.
        (True, 1, 10.0),
        pytest.param(True, 3, 10.0, marks=pytest.mark.release),
        # Of 5 steps the last ends: Q = 1 + 0.9 * 4/5 Q.
        pytest.param(False, 1, 1 / (1 - 0.72), marks=pytest.mark.release),
        # The first two of the 5 reach on by 3 steps, the others to the end: Q = (3 * 2.71 + 1.9 + 1 + 2 * 0.729 Q) / 5.
        pytest.param(False, 3, 11.03 / (5 - 1.458), marks=pytest.mark.release),
    ],
)
def test_bootstraps_from_a_truncation_and_not_from_a_termination(tmp_path, truncates, n_step, value):
    from acme_ext.agents.dqn.config import DQNConfig
    from acme_ext.envs import make_spec
    from acme_ext.replay.config import TransitionConfig

    config = DQNConfig(
        normalize_observations=False,
        discount=0.9,
        hidden_sizes=(),
        batch_size=128,
        learning_rate=0.02,
        learning_rate_decay_steps=1_800,  # all learner steps: the last values have little noise
        huber_delta=None,
        max_gradient_norm=None,
        target_period=10,
        target_rate=1.0,
        replay=TransitionConfig(n_step=n_step, samples_per_insert=128.0, min_size=200),
        sgd_steps_per_call=8,
    )
    environment = make_constant(truncates)
    builder = DQN(config, average_rate=None)
    run(tmp_path, builder, steps=2_000, num_envs=5, environment=environment)
    learned = params(tmp_path, builder, environment(0, False))
    network = builder.make_networks(make_spec(environment(0, False)))
    q = network.apply(learned, None, np.ones((1, 1), np.float32))
    np.testing.assert_allclose(q[0], value, rtol=0.1)


def make_constant(truncates: bool) -> Callable[[int, bool], dm_env.Environment]:
    return named("constant", lambda seed, evaluation: Constant(seed, 5, truncates=truncates))
