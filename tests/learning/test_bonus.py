"""The bonus around an agent that knows nothing of it."""

import dataclasses

import jax
import jax.numpy as jnp
import my_bonuses
import numpy as np
import pytest
from spec_of import continuous, discrete

from acme_ext import builders, launch
from acme_ext.errors import UsageError
from acme_ext.learning.bonus import BONUSES, distilled
from acme_ext.learning.core import LearnerCore
from acme_ext.types import OneStep, Sample, Sequence, Transition
from acme_ext.utils.loggers import read_csv

RNG = np.random.default_rng(0)
KNOWN, NEW = np.eye(2, 6, dtype=np.float32)
BATCH = 8


def told() -> LearnerCore:
    """A core that learns nothing, and says which rewards it was given."""

    def step(state, sample):
        rewards = {"reward": sample.data.reward}
        if getattr(sample.data, "one_step", ()):
            rewards["one_step"] = sample.data.one_step.reward
        return state, {"loss": jnp.zeros(()), **rewards}, sample.weight

    return LearnerCore(lambda key: jnp.zeros(()), step, lambda state: {"policy": state})


def transitions(following, one_step=()) -> Sample:
    ones = np.ones(BATCH, np.float32)
    data = Transition(np.tile(KNOWN, (BATCH, 1)), np.zeros(BATCH, np.int32), 2 * ones, ones, following, (), one_step)
    return Sample(data, ones)


def after(sample, last, *, bonus=distilled, weight=0.5):
    """The metrics of a batch after many of another."""
    core = bonus(told(), KNOWN[None], weight)
    state, step = core.init(jax.random.key(0)), jax.jit(core.step)
    for _ in range(60):
        state, before, errors = step(state, sample)
    np.testing.assert_array_equal(errors, sample.weight)
    return before, step(state, last)[1]


def noisy(observation):
    return observation + RNG.normal(scale=0.01, size=(*observation.shape,)).astype(np.float32)


def test_what_is_new_is_worth_more():
    known = noisy(np.tile(KNOWN, (BATCH, 1)))
    some = known.copy()
    some[3] = NEW
    before, metrics = after(transitions(known), transitions(some))
    bonus = (metrics["reward"] - 2) / 0.5
    assert bonus[3] == 5 == metrics["bonus_max"]  # the most there is
    assert (np.delete(bonus, 3) < 0.5).all()
    assert (np.asarray(before["reward"]) >= 2).all()
    np.testing.assert_allclose(metrics["bonus"], np.mean(bonus), rtol=1e-5)


def test_errors_count_from_the_first_bonus_on():
    core = distilled(told(), KNOWN[None])
    state, step = core.init(jax.random.key(0)), jax.jit(core.step)
    for expected in (0, 0, BATCH, 2 * BATCH):
        state, metrics, _ = step(state, transitions(noisy(np.tile(KNOWN, (BATCH, 1)))))
        assert state.errors.count == expected
        assert expected or not metrics["bonus_max"]


def test_the_first_step_of_n_has_the_bonus_of_where_it_leads():
    known = noisy(np.tile(KNOWN, (BATCH, 1)))
    some = known.copy()
    some[3] = NEW
    one = OneStep(np.ones(BATCH, np.float32), np.ones(BATCH, np.float32), known)
    _, metrics = after(transitions(known, one), transitions(known, one._replace(next_observation=some)))
    assert metrics["one_step"][3] == 1 + 0.5 * 5
    assert metrics["reward"][3] < 2 + 0.5


def test_shuffled_bonuses_are_the_same_ones_elsewhere():
    known = noisy(np.tile(KNOWN, (BATCH, 1)))
    some = known.copy()
    some[3] = NEW
    found = [after(transitions(known), transitions(some), bonus=BONUSES[name])[1] for name in ("rnd", "rnd_shuffled")]
    rewards = [np.asarray(metrics["reward"]) for metrics in found]
    assert (rewards[0] != rewards[1]).any()
    np.testing.assert_allclose(*map(np.sort, rewards), rtol=1e-6)


@pytest.mark.release
def test_shuffled_bonuses_of_unrolls_move_in_time():
    steps = 12
    known = noisy(np.tile(KNOWN, (steps + 1, 1, 1)))
    some = known.copy()
    some[2::2] = NEW
    ones = np.ones((steps, 1), np.float32)
    mask = ones.copy()
    mask[-1] = 0

    def unrolls(observation):
        begins = np.zeros((steps + 1, 1), bool)
        return Sample(Sequence(observation, 0 * observation[..., 0], begins, ones, ones, mask), ones[0])

    found = [after(unrolls(known), unrolls(some), bonus=BONUSES[name])[1] for name in ("rnd", "rnd_shuffled")]
    plain, shuffled = (np.asarray(metrics["reward"])[1:, 0] for metrics in found)
    assert (plain != shuffled).any()
    np.testing.assert_allclose(np.sort(plain), np.sort(shuffled), rtol=1e-6)
    assert shuffled[-1] == 0


def test_a_sequences_bonus_is_of_the_steps_that_count():
    steps = 3
    known = noisy(np.tile(KNOWN, (steps + 1, BATCH, 1)))

    def unrolls(observation):
        ones = np.ones((steps, BATCH), np.float32)
        mask = ones.copy()
        mask[2, 1] = 0
        data = Sequence(
            observation, np.zeros((steps + 1, BATCH), np.float32), np.zeros((steps + 1, BATCH), bool), ones, ones, mask
        )
        return Sample(data, np.ones(BATCH, np.float32))

    some = known.copy()
    some[0, 0] = some[2, 0] = some[3, 1] = NEW  # where it began, where step 1 led, and where no step led
    _, metrics = after(unrolls(known), unrolls(some))
    assert metrics["reward"].shape == (steps + 1, BATCH)
    assert metrics["reward"][2, 0] == 0.5 * 5
    assert (metrics["reward"][0] == 0).all()
    assert metrics["reward"][3, 1] == 0


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        (builders.RND(intrinsic="rnd"), "RND already has an exploration bonus"),
        (builders.R2D2(intrinsic="rnd"), "R2D2 has a recurrent network.* Use ngu or agent57"),
        (builders.PPO(intrinsic="rnd", core="lstm"), "PPO has a recurrent network"),
        (builders.BC(intrinsic="rnd"), "BC doesn't learn from rewards"),
        (builders.DiscreteSQIL(intrinsic="rnd"), "DiscreteSQIL doesn't learn from rewards"),
    ],
)
def test_agents_that_it_is_not_for(builder, message):
    with pytest.raises(UsageError, match=message):
        builder.make_agent(discrete(2))


def test_a_search_has_no_replay_for_it():
    pytest.importorskip("mctx")
    with pytest.raises(UsageError, match="the replay of MuZero can't carry a bonus"):
        builders.MuZero(intrinsic="rnd").make_agent(discrete(2))


def test_a_name_that_is_none():
    with pytest.raises(UsageError, match=r"there is no intrinsic 'rdn'.*rnd"):
        builders.DQN(intrinsic="rdn")


def test_a_weight_that_is_none():
    with pytest.raises(UsageError, match=r"intrinsic_weight is -1\.0: it must not be negative"):
        builders.DQN(intrinsic="rnd", intrinsic_weight=-1.0)
    with pytest.raises(UsageError, match=r"intrinsic_weight is 0\.5, but there is no bonus: set intrinsic too"):
        builders.DQN(intrinsic_weight=0.5)


@pytest.mark.parametrize("agent", ["DQN", "SAC", "PPO"])
def test_agents_that_it_is_for(agent):
    builder = getattr(builders, agent)(intrinsic="rnd")
    spec = continuous(2) if builder.actions == "continuous" else discrete(2)
    plain = dataclasses.replace(builder, intrinsic=None).make_agent(spec)
    made = builder.make_agent(spec)
    state = made.core.abstract_state()
    assert "distillation" in state._fields or "distillation" in state.core._fields
    # The actors are given what they were given before.
    structure = [jax.tree.structure(jax.eval_shape(a.core.variables, a.core.abstract_state())) for a in (plain, made)]
    assert structure[0] == structure[1]


@pytest.mark.release
def test_rainbows_noise_is_no_memory():
    made = builders.Rainbow(intrinsic="rnd").make_agent(discrete(2))
    assert jax.tree.leaves(made.policy.init_state(1))
    size = made.replay.batch_size
    data = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), made.replay.example(size))
    state, step = made.core.init(jax.random.key(0)), jax.jit(made.core.step)
    for _ in range(4):
        seen = {name: RNG.normal(size=(size, 3)).astype(np.float32) for name in ("observation", "next_observation")}
        state, metrics, _ = step(state, Sample(data._replace(**seen), np.ones(size, np.float32)))
    assert metrics["bonus"] > 0
    assert np.isfinite(metrics["loss"])


def three_more(core, observation):
    def step(state, sample):
        return core.step(state, sample._replace(data=sample.data._replace(reward=sample.data.reward + 3)))

    return dataclasses.replace(core, step=step)


@pytest.mark.parametrize(
    ("builder", "clipped"),
    [
        (builders.PPO(), {"max_abs_reward": 1.0}),
        (builders.A2C(), {"max_abs_reward": 1.0}),
        (builders.IMPALA(), {"reward_clipping": "abs_one"}),
    ],
)
def test_rewards_are_clipped_and_bonuses_are_not(builder, clipped):
    rewards = RNG.uniform(-3, 3, size=1_000).astype(np.float32)

    def loss(intrinsic, settings, rewards):
        config = dataclasses.replace(builder.config, **settings)
        agent = dataclasses.replace(builder, config=config, intrinsic=intrinsic).make_agent(discrete(2))
        data = agent.replay.example(agent.replay.batch_size)
        data = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), data)
        reward = np.resize(rewards, data.reward.shape)
        data = data._replace(reward=reward, mask=1 + data.mask, discount=0.9 + data.discount)
        _, metrics, _ = agent.core.step(agent.core.init(jax.random.key(0)), Sample(data, np.ones(BATCH, np.float32)))
        return metrics["loss"]

    within = np.clip(rewards, -1, 1)
    np.testing.assert_allclose(loss(three_more, clipped, rewards), loss(None, {}, within + 3), rtol=1e-5)
    np.testing.assert_allclose(loss(None, clipped, rewards), loss(None, {}, within), rtol=1e-5)
    assert abs(loss(None, {}, within + 3) / loss(None, clipped, within + 3) - 1) > 0.01


def test_a_bonus_of_counts_falls_with_every_sample_of_the_same_hash():
    core = my_bonuses.by_counts(told(), jnp.zeros((1, 6)), weight=0.5, bits=4)
    state = core.init(jax.random.key(0))
    # An observation of zeros has the hash 0: no projection is positive.
    for n in (BATCH, 2 * BATCH, 3 * BATCH):
        state, metrics, _ = core.step(state, transitions(np.zeros((BATCH, 6), np.float32)))
        np.testing.assert_allclose(metrics["reward"], 2 + 0.5 / np.sqrt(n), rtol=1e-6)
        np.testing.assert_allclose(metrics["bonus"], 1 / np.sqrt(n), rtol=1e-6)
    state, metrics, _ = core.step(state, transitions(np.eye(BATCH, 6, dtype=np.float32)))
    assert float(state.counts.sum()) == 4 * BATCH
    assert np.all(metrics["reward"] > 2 + 0.5 / np.sqrt(4 * BATCH))


@pytest.mark.slow
def test_the_example_of_a_bonus_runs_and_resumes(tmp_path):
    def train(steps):
        builder = builders.DQN(intrinsic=my_bonuses.by_counts)
        evaluation = launch.Evaluation(every=0, final_episodes=1)
        run = launch.Experiment(builder, "bsuite:catch/0", steps=steps, run_dir=str(tmp_path), evaluation=evaluation)
        return launch.run(run, quiet=True)

    train(1_500)
    assert train(2_000).learner_steps > 0
    columns = read_csv(tmp_path / "logs" / "learner.csv")
    assert np.all(columns["bonus"] > 0)
    assert np.all(np.diff(columns["hashes_seen"]) >= 0)
