import gc
import importlib.util
import subprocess
import sys

import acme
import dm_env
import gymnasium
import numpy as np
import pytest
import tree
from acme import core, specs
from bsuite.environments.catch import Catch

from acme_ext import envs
from acme_ext.commands import cli
from acme_ext.envs.backend import environment_seed
from acme_ext.envs.vector import VectorEnvironment
from acme_ext.errors import UsageError
from acme_ext.utils import install

# Each family once, with a name of it that steps fast.
EXAMPLES = (
    "gym:CartPole-v1",
    "gym:Pendulum-v1",
    "gym:FrozenLake-v1",
    "atari:Pong",
    "dmc:cartpole/swingup",
    "bsuite:catch/0",
    "bsuite:deep_sea_stochastic/0",
    "bsuite:bandit_noise/0",
    "minatar:breakout",
    "minigrid:DoorKey-5x5",
    "explore:random_coin",
    "envpool:CartPole-v1",
    "envpool:Pong-v5",
    "envpool:WalkerWalk-v1",
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_batches_hold_the_contract_and_repeat(name, rollout, same):
    def run(**kwargs):
        with envs.make(name, num_envs=3, **kwargs) as environment:
            return rollout(environment, 25)

    once = run(seed=7)
    assert same(once, run(seed=7))
    # No-ops and sticky actions alone tell Atari's seeds apart, and they need not within 25 steps.
    if "Pong" not in name:
        assert not same(once, run(seed=8))
        assert not same(once, run(seed=7, evaluation=True))


@pytest.mark.parametrize("name", EXAMPLES)
def test_single_environments_match_their_specs(name):
    environment = envs.make_single(name, seed=3)
    spec = envs.make_spec(environment)
    assert isinstance(spec, specs.EnvironmentSpec)
    with envs.make(name, num_envs=2) as batch:
        assert envs.make_spec(batch) == spec

    timestep = environment.step(spec.actions.generate_value())  # The first step resets, as dm_env has it.
    assert timestep.first()
    assert timestep.reward is None
    for _ in range(30):
        began = timestep.last()
        timestep = environment.step(spec.actions.generate_value())
        assert timestep.first() == began
        spec.observations.validate(timestep.observation)
        if not began:
            spec.rewards.validate(timestep.reward)
            spec.discounts.validate(timestep.discount)
    environment.close()


@pytest.mark.parametrize("name", ["gym:CartPole-v1", "jax:CartPole-v1", "explore:random_coin"])
def test_each_reset_of_a_single_environment_begins_another_episode(name):
    def firsts() -> list[bytes]:
        environment = envs.make_single(name, seed=3)
        return [tree.flatten(environment.reset().observation)[0].tobytes() for _ in range(8)]

    once = firsts()
    assert len(set(once)) > 4
    assert firsts() == once


def test_a_batch_of_one_equals_the_single_environment():
    single = envs.make_single("gym:CartPole-v1", seed=5)
    batch = envs.make("gym:CartPole-v1", seed=5)
    a, b = single.reset(), batch.reset()
    for t in range(60):
        np.testing.assert_array_equal(a.observation, b.observation[0])
        assert a.step_type == b.step_type[0]
        a, b = single.step(t % 2), batch.step(np.array([t % 2]))


class RandomActor(core.Actor):
    """Uniform discrete actions; remembers what it observed."""

    def __init__(self, spec: specs.EnvironmentSpec):
        self._n, self._rng = spec.actions.num_values, np.random.default_rng(0)
        self.timesteps: list[dm_env.TimeStep] = []

    def select_action(self, observation):
        return np.int32(self._rng.integers(self._n))

    def observe_first(self, timestep):
        self.timesteps.append(timestep)

    def observe(self, action, next_timestep):
        self.timesteps.append(next_timestep)

    def update(self, wait=False):
        pass


@pytest.mark.parametrize("name", ["gym:CartPole-v1", "bsuite:catch/0", "envpool:CartPole-v1"])
def test_acme_drives_single_environments(name):
    environment = envs.make_single(name, seed=1)
    actor = RandomActor(envs.make_spec(environment))
    result = acme.EnvironmentLoop(environment, actor).run_episode()
    assert result["episode_length"] == len(actor.timesteps) - 1
    assert result["episode_return"] == pytest.approx(sum(float(t.reward) for t in actor.timesteps[1:]))
    # What the actor kept of the episode's begin is not overwritten by what came later.
    assert not np.array_equal(actor.timesteps[0].observation, actor.timesteps[-1].observation)


class Counting(dm_env.Environment):
    """Delivers its seed, in double precision."""

    def __init__(self, seed: int, evaluation: bool):
        self.seed, self.evaluation = seed, evaluation

    def reset(self):
        return dm_env.restart(np.array([self.seed], np.float64))

    def step(self, action):
        return dm_env.transition(1.0, np.array([self.seed], np.float64))

    def observation_spec(self):
        return specs.Array((1,), np.float64)

    def action_spec(self):
        return specs.DiscreteArray(2, np.int64)


def test_functions_make_environments_too():
    batch = envs.make(Counting, num_envs=4, seed=2, evaluation=True)
    assert isinstance(batch, VectorEnvironment)
    made = [e for e in batch.environments if isinstance(e, Counting)]
    assert [e.seed for e in made] == [environment_seed(2, True, i) for i in range(4)]
    assert all(e.evaluation for e in made)
    assert batch.reset().observation.dtype == np.float32

    single = envs.make_single(Counting, seed=2, evaluation=True)
    assert single.reset().observation.dtype == np.float32
    timestep = single.step(np.int32(1))
    assert (timestep.reward.dtype, timestep.discount.dtype) == (np.float32, np.float32)
    with pytest.raises(UsageError, match=r"can't be called .*: got an unexpected keyword argument 'flatten'"):
        envs.make(Counting, flatten=True)


def test_an_environment_that_is_not_functional_is_closed_again():
    closed = []

    class Closing(Counting):
        def close(self):
            closed.append(self.seed)

    assert envs.make_functional(Closing, seed=2) is None
    assert closed == [environment_seed(2, False)]


@pytest.mark.parametrize("option", ["environment", "num_envs", "seed", "evaluation", "name"])
def test_what_the_run_sets_itself_is_no_option(option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "dqn", "gym:CartPole-v1", "--env-set", f"{option}=1", "--run-dir", "run"]) == 2
    assert f"an environment can't have an option {option!r}: the run itself sets it." in capsys.readouterr().err


def test_environments_are_closed_if_one_can_not_be_made():
    closed = []

    class Own(Catch):
        def __init__(self, number, columns):
            super().__init__(columns=columns)
            self._number = number

        def close(self):
            closed.append(self._number)

    for told, columns in (("must have equal observation", [5, 5, 4]), ("no columns", [5, 5, None])):
        made = iter(range(3))

        def factory(seed, evaluation, columns=columns, made=made):
            number = next(made)
            if columns[number] is None:
                raise UsageError("no columns")
            return Own(number, columns[number])

        closed.clear()
        with pytest.raises(UsageError, match=told):
            envs.make(factory, num_envs=3)
        assert sorted(closed) == [0, 1, 2][: 3 - columns.count(None)]
    closed.clear()
    batch = envs.make(lambda seed, evaluation: Own(0, 5), num_envs=3)
    gc.collect()
    assert closed == []
    batch.close()
    assert closed == [0] * 3


def test_a_single_environment_must_be_a_dm_env_too():
    with pytest.raises(UsageError, match=r"must return a dm_env\.Environment, not a CartPoleEnv"):
        envs.make_single(lambda seed, evaluation: gymnasium.make("CartPole-v1").unwrapped)


def test_seeds_do_not_meet():
    grid = [(s, e, i) for s in range(40) for e in (False, True) for i in range(40)]
    seeds = {key: environment_seed(*key) for key in grid}
    assert len(set(seeds.values())) == len(grid)
    training = [seed for (_, evaluation, _), seed in seeds.items() if not evaluation]
    evaluation = [seed for (_, evaluation, _), seed in seeds.items() if evaluation]
    assert max(training) + 2**20 < 2**30 <= min(evaluation)
    assert max(evaluation) + 2**20 < 2**31


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (
            "atri:Pong",
            {},
            "or py:module:function for your own: did you mean 'atari'",
        ),
        ("CartPole-v1", {}, "'CartPole-v1' names no family of environments"),
        ("gym:CartPole", {}, "no environment 'gym:CartPole'; did you mean 'gym:CartPole-v1'"),
        ("gym:ALE/Pong-v5", {}, "use the family atari, as in 'atari:Pong'"),
        ("gym:MiniGrid-DoorKy-8x8-v0", {}, "did you mean 'minigrid:DoorKey-8x8'"),
        ("gym:no_such_module:X-v0", {}, "gymnasium can't make 'no_such_module:X-v0': No module named"),
        ("atari:Pnog", {}, "no environment 'atari:Pnog'; did you mean 'atari:Pong'"),
        ("dmc:cartpole/swing", {}, "did you mean 'dmc:cartpole/swingup'"),
        ("bsuite:catch/99", {}, "no environment 'bsuite:catch/99'; did you mean 'bsuite:catch/"),
        ("minatar:brekout", {}, "did you mean 'minatar:breakout'"),
        ("envpool:Pong", {}, "did you mean 'envpool:Pong-v5'"),
        ("atari:Pong", {"lifeloss": True}, "'atari:Pong' has no option 'lifeloss'; did you mean 'life_loss'?"),
        ("atari:Pong", {"life_loss": 1}, "option 'life_loss' of 'atari:Pong' is 1: it must be true or false"),
        ("gym:CartPole-v1", {"max_steps": 3}, "did you mean 'max_episode_steps'?"),
        ("gym:CartPole-v1", {"max_episode_steps": "3"}, "it must be a whole number or none"),
        ("bsuite:catch/0", {"rows": 4}, "has no option 'rows'; it takes none."),
        ("envpool:Pong-v5", {"frameskip": 3}, "did you mean 'frame_skip'?"),
    ],
)
def test_bad_names_and_options_are_one_sentence(name, options, sentence):
    with pytest.raises(UsageError) as error:
        envs.check_environment(name, **options)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(UsageError):
        envs.make(name, **options)


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"environment": "gym:CartPole-v1", "num_envs": 0}, "at least 1 environment, not 0"),
        ({"environment": "gym:CartPole-v1", "seed": -1}, "a seed is a whole number from 0, not -1"),
        (
            {"environment": "gym:CartPole-v1", "max_episode_steps": 0},
            "option 'max_episode_steps' of 'gym:CartPole-v1' is .*: it must be at least 1",
        ),
        (
            {"environment": "gym:CartPole-v1", "max_episode_steps": -1, "num_envs": 2},
            "option 'max_episode_steps' of 'gym:CartPole-v1' is .*: it must be at least 1",
        ),
        (
            {"environment": "atari:Pong", "sticky_actions": 1.5},
            "option 'sticky_actions' of 'atari:Pong' is 1.5: it must lie in",
        ),
        (
            {"environment": "atari:Pong", "max_frames": 10},
            "max_frames is 10: it must be more than noop_max, which is 30",
        ),
        (
            {"environment": "minatar:breakout", "max_steps": 0},
            "option 'max_steps' of 'minatar:breakout' is 0: it must be at least 1",
        ),
        (
            {"environment": "minatar:breakout", "sticky_action_prob": -1},
            "'sticky_action_prob' of 'minatar:breakout' is -1: it must lie in",
        ),
    ],
)
def test_bad_values_are_one_sentence(kwargs, sentence):
    with pytest.raises(UsageError, match=sentence):
        envs.make(**kwargs)


@pytest.mark.parametrize("family", [family for family in envs.families() if family.extra])
def test_a_backend_that_is_not_installed_names_its_extra(family, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in family.needs else found(name))
    with pytest.raises(UsageError) as error:
        envs.check_environment(family.example)
    assert str(error.value).endswith(f"not installed here: {install.command(family.extra)}")


@pytest.mark.parametrize("family", envs.families())
def test_the_families_examples_are_valid(family):
    envs.check_environment(family.example)
    assert family.example.startswith(family.start)


def test_listing_the_families_imports_no_backend():
    heavy = {module for family in envs.families() for module in family.needs} | {"acme", "jax", "tensorflow"}
    code = (
        "import sys; from acme_ext import envs; assert len(envs.families()) == 13; "
        f"print(sorted(set(sys.modules) & {heavy!r}))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"
