"""What every agent of continuous actions must do with bounds, with the end of an episode, and with dicts."""

import dataclasses

import dm_env
import numpy as np
import pytest
from dm_env import specs

from acme_ext import builders, launch

pytestmark = pytest.mark.usefixtures("no_figures")

# Agents and the fields with which they learn what follows in seconds.
_SMALL = {"batch_size": 64}
_REPLAY = {"samples_per_insert": 32.0, "min_size": 200}
_ACTOR_CRITIC = {
    **_SMALL,
    "policy_sizes": (32, 32),
    "critic_sizes": (32, 32),
    "policy_learning_rate": 3e-3,
    "critic_learning_rate": 3e-3,
    "target_period": 10,
}
_DPG = {**_ACTOR_CRITIC, "noise_stddev": 1.0}
_MPO = {
    **_ACTOR_CRITIC,
    "init_temperature": 1.0,
    "epsilon_mean": 1e-2,
    "init_alpha_mean": 1.0,
    "epsilon_stddev": 1e-2,
    "init_alpha_stddev": 1.0,
}
AGENTS = {
    "sac": {
        **_SMALL,
        "hidden_sizes": (32, 32),
        "learning_rate": 3e-3,
        "target_rate": 0.02,
        "init_temperature": 0.1,
        "random_steps": 500,
    },
    "td3": {**_SMALL, "hidden_sizes": (32, 32), "learning_rate": 3e-3, "target_rate": 0.02, "random_steps": 500},
    "d4pg": {**_DPG, "v_min": -21.0, "v_max": 10.0},
    "apex_dpg": _DPG,
    "mpo": _MPO,
    "dmpo": {**_MPO, "v_min": -21.0, "v_max": 10.0},
}
# One of them is enough before a release.
_ONE_OF_THEM = [pytest.param(name, marks=() if name == "sac" else pytest.mark.release) for name in AGENTS]

LOW, HIGH = -2.0, 3.0


class Dials(dm_env.Environment):
    """One step, with three dials to set: the best places are inside the bounds, the maximum and the minimum."""

    best = np.array([1.5, HIGH, LOW], np.float32)

    def __init__(self, taken: list[np.ndarray]):
        self.taken = taken

    def reset(self) -> dm_env.TimeStep:
        return dm_env.restart(self._observation())

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        assert action.shape == (3,)
        assert action.dtype == np.float32
        self.taken.append(action.copy())
        return dm_env.termination(-float(np.mean((action - self.best) ** 2)), self._observation())

    def _observation(self) -> dict[str, np.ndarray]:
        return {"velocity": np.ones(2, np.float32), "height": np.array(0.5, np.float32)}

    def observation_spec(self) -> dict[str, specs.Array]:
        return {"velocity": specs.Array((2,), np.float32), "height": specs.Array((), np.float32)}

    def action_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((3,), np.float32, LOW, HIGH)


class Leaving(dm_env.Environment):
    """To turn the dial up is worth more at once, 1 at the maximum and 0.5 at the minimum, and ends the episode: with
    certainty at the maximum and never at the minimum.

    Where that is a termination it is better to stay; where it is a truncation nothing is lost by leaving.
    """

    def __init__(self, seed: int, *, truncates: bool):
        self.rng, self.truncates, self.time = np.random.default_rng(seed), truncates, 0

    def reset(self) -> dm_env.TimeStep:
        self.time = 0
        return dm_env.restart(np.ones(1, np.float32))

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        self.time += 1
        share = (float(action) - LOW) / (HIGH - LOW)
        assert 0 <= share <= 1
        reward, observation = 0.5 + 0.5 * share, np.ones(1, np.float32)
        if self.rng.random() < share:
            return (dm_env.truncation if self.truncates else dm_env.termination)(reward, observation)
        if self.time == 20:
            return dm_env.truncation(reward, observation)
        return dm_env.transition(reward, observation)

    def observation_spec(self) -> specs.Array:
        return specs.Array((1,), np.float32)

    def action_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((), np.float32, LOW, HIGH)


def run(name, environment, steps, folder, **fields) -> launch.Result:
    cls = builders.load(name)
    default = cls().config
    # From single steps D4PG stays at an end of its actions once it is there: the policy's tanh has no slope.
    steps_of_item = 5 if name == "d4pg" else default.replay.n_step
    replay = dataclasses.replace(default.replay, n_step=steps_of_item, **_REPLAY)
    config = dataclasses.replace(default, **AGENTS[name], replay=replay, **fields)
    evaluation = launch.Evaluation(every=0, final_episodes=10)
    experiment = launch.Experiment(
        cls(config), environment, steps=steps, num_envs=4, evaluation=evaluation, run_dir=str(folder / "run")
    )
    return launch.run(experiment, quiet=True)


@pytest.mark.release
@pytest.mark.parametrize("name", AGENTS)
def test_actions_are_in_the_bounds_cover_them_and_are_learned_from_in_the_agents_units(name, tmp_path):
    # A learner that took the replay's actions for its own would find the best of the first dial beyond its range.
    trained: list[np.ndarray] = []
    evaluated: list[np.ndarray] = []
    make = launch.named("dials", lambda seed, evaluation: Dials(evaluated if evaluation else trained))
    run(name, make, 2_500, tmp_path)
    least, most = np.min(trained, axis=0), np.max(trained, axis=0)
    assert least.min() >= LOW
    assert most.max() <= HIGH
    np.testing.assert_allclose(least, LOW, atol=0.1)
    np.testing.assert_allclose(most, HIGH, atol=0.1)
    np.testing.assert_allclose(evaluated, np.tile(Dials.best, (10, 1)), atol=0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("truncates", "leaves"), [pytest.param(True, True, marks=pytest.mark.release), (False, False)])
@pytest.mark.parametrize("name", _ONE_OF_THEM)
def test_a_truncation_bootstraps_and_a_termination_does_not(name, truncates, leaves, tmp_path):
    make = launch.named("leaving", lambda seed, evaluation: Leaving(seed, truncates=truncates))
    result = run(name, make, 2_500, tmp_path, discount=0.9)
    assert result.score is not None
    assert np.mean(result.score.lengths) < 3 if leaves else np.mean(result.score.lengths) > 10
