"""Environments of Brax, Jumanji and Navix: the rules of a batch, steps beside the library's own, and refusals."""

import dataclasses
import importlib
import importlib.util
import subprocess
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext import builders, envs, launch
from acme_ext.envs import jax_navix
from acme_ext.errors import UsageError
from acme_ext.launch import Checkpoints, Evaluation, Experiment
from acme_ext.replay import UnrollConfig

FIRST, MID, LAST = 0, 1, 2


def library(name: str) -> Any:
    """The library of `jax:LIBRARY/...`; skips the test where it isn't installed."""
    module = name.removeprefix("jax:").partition("/")[0]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} isn't installed")
    return jax_navix.library() if module == "navix" else importlib.import_module(module)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("jax:brax/inverted_pendulum", {"max_steps": 12}, marks=pytest.mark.release),
        ("jax:jumanji/Minesweeper-v0", {}),
        pytest.param("jax:jumanji/RubiksCube-partly-scrambled-v0", {}, marks=pytest.mark.release),
        pytest.param("jax:navix/Empty-Random-5x5", {"max_steps": 12}, marks=pytest.mark.release),
    ],
)
def test_a_batch_keeps_the_contract(name, options, rollout, same):
    library(name)

    def run(**more):
        with envs.make(name, num_envs=3, **options, **more) as environment:
            return rollout(environment, 30)

    once = run(seed=2)
    assert any((timestep.step_type == LAST).any() for timestep in once)
    assert same(once, run(seed=2))
    assert not same(once, run(seed=3))


def beside(environment, start, act, episodes, choose=None, **close):
    """Plays episodes in an environment and in its library's own, and compares every step.

    Args:
        environment: the adapter.
        start: the library's `key -> (state, observation)`.
        act: its `(state, action) -> (state, (observation, reward, ended, terminated))`.
        episodes: so many.
        choose: `(rng, observation) -> action`; a random one of the spec by default.
        close: the tolerance.

    Returns:
        The lengths of the episodes, and the discounts at their ends.
    """
    spec, rng = environment.action_spec(), np.random.default_rng(0)
    step, start, act = jax.jit(environment.step), jax.jit(start), jax.jit(act)
    key = jax.random.key(4)
    state, timestep = jax.jit(environment.reset)(key)
    theirs, observation = start(jax.random.split(key)[1])
    lengths, discounts, length = [], [], 0
    while len(lengths) < episodes:
        if hasattr(spec, "num_values"):
            action = choose(rng, timestep.observation) if choose else rng.integers(spec.num_values)
            action = np.int32(action)
        else:
            action = rng.uniform(spec.minimum, spec.maximum, spec.shape).astype(np.float32)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **close), timestep.observation, observation)
        if state.last:
            lengths.append(length)
            discounts.append(float(timestep.discount))
            theirs, observation = start(jax.random.split(state.key)[1])
            state, timestep = step(state, action)
            assert (int(timestep.step_type), float(timestep.reward), float(timestep.discount)) == (FIRST, 0.0, 1.0)
            length = 0
            continue
        state, timestep = step(state, action)
        theirs, (observation, reward, ended, terminated) = act(theirs, action)
        length += 1
        np.testing.assert_allclose(timestep.reward, reward, **close)
        assert int(timestep.step_type) == (LAST if ended else MID)
        assert float(timestep.discount) == float(not terminated)
    return lengths, discounts


@pytest.mark.release
def test_every_step_is_braxs_and_its_limit_truncates():
    library("brax")
    brax = importlib.import_module("brax.envs")
    limit = 7
    original = brax.create("inverted_pendulum", episode_length=limit, auto_reset=False)

    def start(key):
        state = original.reset(jax.random.key_data(key))  # its wrapper takes the key's shape for that of a batch
        return state, state.obs

    def act(state, action):
        after = original.step(state, action)
        return after, (after.obs, after.reward, after.done > 0, (after.done > 0) & (after.info["truncation"] == 0))

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # none is shown to a user
        environment = envs.make_functional("jax:brax/inverted_pendulum", max_steps=limit)
    assert environment is not None
    lengths, discounts = beside(environment, start, act, 30, rtol=1e-4, atol=1e-5)
    assert max(lengths) == limit
    assert {1.0, 0.0} == set(discounts)


def legal(rng, observation):
    return rng.choice(np.flatnonzero(observation["action_mask"]))


def jumanjis(name, flat):
    """The library's environment, with the adapter's actions and fields."""
    original = library("jumanji").make(name)
    sizes = np.ravel(original.action_spec.num_values).tolist()

    def start(key):
        state, timestep = original.reset(key)
        return state, flat(timestep.observation)

    def act(state, action):
        parts = jnp.stack(jnp.unravel_index(action, sizes)) if original.action_spec.shape else action
        state, timestep = original.step(state, parts)
        return state, (flat(timestep.observation), timestep.reward, timestep.last(), timestep.discount == 0)

    return start, act


@pytest.mark.release
def test_every_step_is_jumanjis_with_actions_of_two_parts():
    def flat(observation):
        names = ("board", "num_mines", "step_count")
        return {
            **{name: getattr(observation, name) for name in names},
            "action_mask": observation.action_mask.reshape(100),
        }

    start, act = jumanjis("Minesweeper-v0", flat)
    environment = envs.make_functional("jax:jumanji/Minesweeper")
    assert environment is not None
    lengths, discounts = beside(environment, start, act, 8, legal)
    assert max(lengths) > 3
    assert set(discounts) == {0.0}


@pytest.mark.release
def test_every_step_is_jumanjis_but_that_its_limit_truncates():
    def flat(observation):
        agent, target = observation.agent_position, observation.target_position
        return {
            "agent_position_row": agent.row,
            "agent_position_col": agent.col,
            "target_position_row": target.row,
            "target_position_col": target.col,
            **{name: getattr(observation, name) for name in ("walls", "action_mask", "step_count")},
        }

    start, theirs = jumanjis("Maze-v0", flat)

    def act(state, action):
        after, (observation, reward, ended, terminated) = theirs(state, action)
        return after, (observation, reward, ended, terminated & (reward > 0))  # 1 at the target

    environment = envs.make_functional("jax:jumanji/Maze-v0")
    assert environment is not None
    lengths, discounts = beside(environment, start, act, 12, legal)
    assert {length for length, discount in zip(lengths, discounts, strict=True) if discount == 1} == {100}
    assert 0.0 in discounts


@pytest.mark.release
@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("Dynamic-Obstacles-5x5", {0.0, 1.0}),
        ("DoorKey-Random-5x5", {1.0}),
    ],
)
def test_every_step_is_navixs(name, seen):
    navix = library("navix")
    original = navix.make(f"Navix-{name}-v0", max_steps=20, observation_fn=navix.observations.symbolic_first_person)

    def one_hot(codes):
        return jnp.concatenate([jax.nn.one_hot(codes[..., i], size) for i, size in enumerate((11, 6, 4))], -1)

    def start(key):
        timestep = original.reset(key)
        return timestep, one_hot(timestep.observation)

    def act(before, action):
        after = original.step(before, action)
        return after, (one_hot(after.observation), after.reward, after.is_done(), after.is_termination())

    environment = envs.make_functional(f"jax:navix/{name}", max_steps=20)
    assert environment is not None
    lengths, discounts = beside(environment, start, act, 20)
    assert max(lengths) == 20
    assert seen <= set(discounts)


@pytest.mark.release
def test_navix_is_found_where_an_old_tensorflow_has_been_imported():
    library("navix")
    code = "import tensorflow; from acme_ext import envs; envs.make_functional('jax:navix/Empty-5x5')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.release
def test_navix_has_the_rules_of_minigrid_but_for_its_rewards_size():
    library("navix")
    library("minigrid")
    options = {"view": "whole", "max_steps": 30}
    ours = envs.make_single("jax:navix/Empty-5x5", seed=0, **options)
    theirs = envs.make_single("minigrid:Empty-5x5", seed=0, **options)  # the map is always the same
    rng, ends = np.random.default_rng(1), set()
    for _ in range(600):
        action = np.int32(rng.choice(7, p=(0.15, 0.15, 0.5, 0.05, 0.05, 0.05, 0.05)))  # mostly forward
        mine, other = ours.step(action), theirs.step(action)
        np.testing.assert_array_equal(mine.observation, np.swapaxes(other.observation, 0, 1))  # theirs is [x, y]
        assert mine.step_type == other.step_type
        if not mine.first():
            assert mine.discount == other.discount
            assert (mine.reward > 0) == (other.reward > 0)
        if mine.last():
            ends.add((float(mine.discount), float(mine.reward)))
    assert ends == {(1.0, 0.0), (0.0, 1.0)}  # cut short, and at the goal


@pytest.mark.release
def test_a_fixed_map_of_navix_is_the_same_in_all_episodes_and_others_are_not():
    library("navix")

    def maps(**options):
        batch = envs.make("jax:navix/DoorKey-5x5", num_envs=4, seed=1, view="whole", max_steps=1, **options)
        found = [batch.reset().observation]
        for _ in range(2):
            timestep = batch.step(np.zeros(4, np.int32))
        assert timestep.step_type.tolist() == [0] * 4  # the next episodes' first
        return np.concatenate([*found, timestep.observation]).reshape(8, -1)

    assert len(np.unique(maps(fixed_map=True), axis=0)) == 1
    assert len(np.unique(maps(), axis=0)) > 1


@pytest.mark.release
def test_what_one_agent_cannot_play_is_refused_by_name_and_the_rest_is_made():
    names, refused = library("jumanji").registered_environments(), {}
    for name in names:
        try:
            made = envs.make_functional(f"jax:jumanji/{name}")
            assert made is not None
            assert "action_mask" in made.observation_spec() or name.startswith("RubiksCube")
        except UsageError as error:
            refused[name.rpartition("-")[0]] = str(error)
    assert all(f"'jax:jumanji/{name}-" in sentence for name, sentence in refused.items())
    agents = {"Connector", "LevelBasedForaging", "SearchAndRescue"}
    actors = {"Cleaner", "JobShop", "MMST", "RobotWarehouse"}
    assert refused.keys() == {*agents, *actors, "MultiCVRP", "Sokoban"}
    assert all("one for each agent" in refused[name] for name in agents)
    assert all("actors" in refused[name] for name in actors)
    assert "download" in refused["Sokoban"]


def trained(folder, builder, name, **options):
    return launch.run(
        Experiment(
            builder,
            name,
            steps=400,
            num_envs=4,
            run_dir=str(folder),
            environment_options=options,
            evaluation=Evaluation(every=0, final_episodes=2, num_envs=2),
            checkpoints=Checkpoints(every_s=0),
        ),
        launch.Compiled(),
        quiet=True,
    )[0]


def small_ppo():
    config = dataclasses.replace(
        builders.PPO().config,
        hidden_sizes=(8,),
        batch_size=4,
        num_minibatches=2,
        num_epochs=2,
        replay=UnrollConfig(max_size=4, length=9),
    )
    return builders.PPO(config)


@pytest.mark.release
@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize(
    "name",
    [
        "jax:jumanji/RubiksCube-partly-scrambled-v0",
        "jax:navix/Empty-5x5",
    ],
)
def test_ppo_trains_compiled(tmp_path, name):
    library(name)
    result = trained(tmp_path / "run", small_ppo(), name)
    assert result.learner_steps > 5
    assert np.isfinite(result.score.returns).all()


@pytest.mark.release
@pytest.mark.usefixtures("no_figures")
def test_sac_trains_compiled_on_brax(tmp_path):
    library("brax")
    builder = builders.SAC()
    replay = dataclasses.replace(builder.config.replay, min_size=50, max_size=400)
    config = dataclasses.replace(builder.config, hidden_sizes=(8, 8), batch_size=8, replay=replay)
    result = trained(tmp_path / "run", builders.SAC(config), "jax:brax/inverted_pendulum", max_steps=20)
    assert result.learner_steps > 50


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("jax:brax/ants", {}, "no environment 'jax:brax/ants'; did you mean 'jax:brax/ant'"),
        ("jax:bras/ant", {}, "no environment 'jax:bras/ant'; did you mean 'jax:brax/ant'"),
        ("jax:jumanji/Snak", {}, "did you mean 'jax:jumanji/Snake-v1'"),
        ("jax:brax/ant", {"physics": "fast"}, "physics of 'jax:brax/ant' must be one of generalized, spring"),
        ("jax:brax/swimmer", {"physics": "spring"}, "must be one of generalized, not"),
        ("jax:brax/ant", {"max_steps": 0}, "is 0: it must be at least 1"),
        ("jax:jumanji/Snake-v1", {"size": 3}, "has no option 'size'; it takes none"),
        ("jax:navix/DorKey-8x8", {}, "did you mean 'jax:navix/DoorKey-8x8'"),
        ("jax:navix/Empty-5x5", {"view": "above"}, "'above': it must be one of grid, picture, whole"),
        ("jax:navix/Empty-5x5", {"max_steps": 0}, "is 0: it must be at least 1"),
        ("jax:navix/Empty-5x5", {"max_steps": True}, "is True: it must be a whole number or none"),
    ],
)
def test_bad_names_and_options_are_one_sentence(name, options, sentence):
    if not name.startswith("jax:bras"):
        library(name)
    with pytest.raises(UsageError, match=sentence):
        envs.make(name, **options)
