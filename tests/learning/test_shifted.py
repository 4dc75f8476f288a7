import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spec_of import continuous, discrete

from acme_ext import builders
from acme_ext.errors import UsageError
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.shifted import ShiftedState, shifted_core
from acme_ext.types import EnvironmentSpec, OneStep, Sample, Transition

KEY = jax.random.key(0)
SIDE = 10
ROW = (SIDE, SIDE, 2)

WITH_SHIFTS = [
    name
    for name in builders.AGENTS
    if "random_shift" in {field.name for field in dataclasses.fields(builders.load(name)().config)}
]


def core_that_shows() -> LearnerCore:
    """A core whose metrics are the batch."""
    return LearnerCore(
        init=lambda key: jnp.zeros(()),
        step=lambda state, sample: (state + 1, {"loss": state, "data": sample.data}, sample.weight),  # type: ignore[dict-item]
        variables=lambda state: {"policy": state},
    )


def seen(count: int = 16) -> dict[str, np.ndarray]:
    size = int(np.prod(ROW))
    picture = np.arange(count * size, dtype=np.int32).reshape(count, *ROW)
    return {"picture": picture, "speed": np.arange(2 * count, dtype=np.float32).reshape(count, 2)}


def sample(observation=None, **fields) -> Sample:
    observation = seen() if observation is None else observation
    count = len(jax.tree.leaves(observation)[0])
    zeros = np.zeros(count, np.float32)
    return Sample(Transition(observation, zeros, zeros, zeros, observation, **fields), np.ones(count, np.float32))


def test_pictures_are_shifted_anew_in_each_field_and_step_and_vectors_left_alone():
    core = shifted_core(core_that_shows(), seen(1), 4)
    batch = sample(one_step=OneStep(np.zeros(16), np.zeros(16), seen()))
    first_state, first, errors = core.step(core.init(KEY), batch)
    _, second, _ = core.step(first_state, batch)
    data = [metrics["data"] for metrics in (first, second)]
    ends = [end for d in data for end in (d.observation, d.next_observation, d.one_step.next_observation)]
    for end in ends:
        np.testing.assert_array_equal(end["speed"], seen()["speed"])
    # No two of the six were shifted alike, and none was left as it is.
    pictures = [np.asarray(end["picture"]) for end in ends] + [seen()["picture"]]
    for i, one in enumerate(pictures):
        assert all(np.any(one != other) for other in pictures[:i])
    np.testing.assert_array_equal(errors, batch.weight)


def test_a_state_that_is_taken_up_again_shifts_as_it_would_have():
    core = shifted_core(core_that_shows(), seen(1), 4)
    state, _, _ = core.step(core.init(KEY), sample())
    kept = jax.tree.map(np.asarray, state._replace(key=jax.random.key_data(state.key)))
    kept = kept._replace(key=jax.random.wrap_key_data(kept.key))
    (_, first, _), (_, again, _) = core.step(state, sample()), core.step(kept, sample())
    jax.tree.map(np.testing.assert_array_equal, first["data"], again["data"])


def test_actors_are_given_what_the_core_gives():
    core = shifted_core(core_that_shows(), seen(1), 4)
    state, _, _ = core.step(core.init(KEY), sample())
    assert core.variables(state) == {"policy": 1}


@pytest.mark.parametrize(
    ("observation", "most", "said"),
    [
        (np.zeros((1, 4), np.float32), 4, r"random_shift is 4: .* these have shapes \[4\]; leave it at none"),
        (np.zeros((1, 10, 5), np.float32), 4, r"shapes \[10, 5\]"),
        (np.zeros((1, *ROW), np.uint8), SIDE, r"random_shift is 10: the images have sides of 10"),
    ],
)
def test_what_is_no_picture_is_refused(observation, most, said):
    with pytest.raises(UsageError, match=said):
        shifted_core(core_that_shows(), observation, most)


def spec_of(name: str) -> EnvironmentSpec:
    is_continuous = builders.load(name).actions == "continuous"
    return continuous(2, ROW, np.uint8) if is_continuous else discrete(3, ROW, np.uint8)


def test_the_agents_with_shifts_are_those_with_a_replay_of_transitions():
    assert {"dqn", "rainbow", "apex", "sac", "td3", "d4pg", "apex_dpg", "mpo", "dmpo"} <= set(WITH_SHIFTS)


@pytest.mark.parametrize("name", WITH_SHIFTS)
def test_every_agent_with_the_field_learns_from_shifted_pictures(name):
    builder = builders.load(name)()
    assert builder.config.random_shift is None
    config = dataclasses.replace(builder.config, random_shift=4)
    state = dataclasses.replace(builder, config=config).make_agent(spec_of(name)).core.abstract_state()
    assert "ShiftedState" in str(jax.tree.structure(state))
    usual = builder.make_agent(spec_of(name)).core.abstract_state()
    assert "ShiftedState" not in str(jax.tree.structure(usual))


def test_a_shift_of_nothing_is_refused():
    config = builders.load("sac")().config
    with pytest.raises(UsageError, match="random_shift is 0: it must be at least 1"):
        dataclasses.replace(config, random_shift=0)


@pytest.mark.release
def test_sac_steps_from_shifted_pictures_are_repeated_from_its_state():
    config = dataclasses.replace(builders.load("sac")().config, random_shift=4, hidden_sizes=(8,), batch_size=4)
    core = builders.load("sac")(config).make_agent(spec_of("sac")).core
    pictures = np.random.default_rng(0).integers(0, 255, (4, *ROW), dtype=np.uint8)
    batch = sample(pictures)
    batch = batch._replace(data=batch.data._replace(action=np.zeros((4, 2), np.float32)))
    step = jax.jit(core.step)
    state, metrics, _ = step(core.init(KEY), batch)
    assert isinstance(state, ShiftedState)
    assert np.isfinite(metrics["loss"])
    # Twice from the same state.
    (one, _, _), (other, _, _) = step(state, batch), step(state, batch)
    jax.tree.map(np.testing.assert_array_equal, one.core.policy, other.core.policy)
    # And from another key, other steps.
    (changed, _, _) = step(state._replace(key=jax.random.key(9)), batch)
    critics = [jax.tree.leaves(s.core.critics.params) for s in (one, changed)]
    assert any(np.any(np.asarray(a) != np.asarray(b)) for a, b in zip(*critics, strict=True))
