import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import Source

from acme_ext.acting.inference import InferenceCore, LocalInference, slot_keys
from acme_ext.acting.policy import Policy
from acme_ext.acting.slots import SlotCore, bucket_sizes
from acme_ext.acting.variables import VariableClient
from acme_ext.types import FIRST, MID

SLOTS, TIME, FEATURES, UNITS = 6, 12, 3, 4
KEY = jax.random.key(5)


def recurrent_policy() -> Policy:
    """A random policy that remembers, made of what agents are made of: matrices, sampling, state."""
    weights = jax.random.normal(jax.random.key(1), (UNITS + FEATURES + 1, UNITS))

    def apply(params, context, observation, state):
        inputs = jnp.concatenate([state["memory"], observation, context.reward[:, None]], axis=-1)
        memory = jnp.tanh(params * (inputs @ weights))
        action = jax.vmap(jax.random.categorical)(context.key, memory + context.rank[:, None])
        return action, {"memory": memory}, {"logits": memory}

    return Policy(apply, lambda batch: {"memory": np.zeros((batch, UNITS), np.float32)})


@pytest.fixture(scope="module")
def experience():
    rng = np.random.default_rng(0)
    observation = rng.normal(size=(TIME, SLOTS, FEATURES)).astype(np.float32)
    reward = rng.normal(size=(TIME, SLOTS)).astype(np.float32)
    first = rng.random((TIME, SLOTS)) < 0.2
    first[0] = True
    return observation, reward, first


@pytest.fixture(scope="module")
def local(experience):
    """What each environment does when the policy is applied in the process that steps it: a list over time."""
    observation, reward, first = experience
    inference = LocalInference(recurrent_policy(), VariableClient(Source(offset=1.0)), KEY, SLOTS)
    kinds = np.where(first, FIRST, MID).astype(np.uint8)
    discount = np.ones(SLOTS, np.float32)
    return [inference.step(0, dm_env.TimeStep(kinds[t], reward[t], discount, observation[t])) for t in range(TIME)]


def seated(buckets) -> SlotCore:
    core = SlotCore(recurrent_policy(), SLOTS, buckets)
    core.assign_slots(np.arange(SLOTS), slot_keys(KEY, SLOTS), np.linspace(0, 1, SLOTS, dtype=np.float32))
    return core


@pytest.mark.parametrize("buckets", [[1, 2, 4, 6], [6], [3, 8]])
@pytest.mark.parametrize("seed", range(3))
def test_any_order_and_any_batch_gives_what_the_local_policy_does(experience, local, buckets, seed):
    observation, reward, first = experience
    core, rng = seated(buckets), np.random.default_rng(seed)
    params = 2.0  # what Source gave first
    clocks = np.zeros(SLOTS, np.int64)
    while (clocks < TIME).any():
        # Some of those that have steps left, in any order, each at its own time.
        able = np.nonzero(clocks < TIME)[0]
        slots = rng.permutation(able)[: rng.integers(1, min(len(able), buckets[-1]) + 1)]
        times = clocks[slots]
        acted = core.step(
            params,
            slots,
            times.astype(np.int32),
            0,
            first[times, slots],
            reward[times, slots],
            observation[times, slots],
        )
        for row, (slot, time) in enumerate(zip(slots, times, strict=True)):
            assert acted.action[row] == local[time].action[slot]
            np.testing.assert_allclose(
                acted.extras["logits"][row], local[time].extras["logits"][slot], rtol=1e-5, atol=1e-6
            )
            before = np.asarray(local[time].state["memory"])[slot]
            np.testing.assert_allclose(acted.state["memory"][row], before, rtol=1e-5, atol=1e-6)
        clocks[slots] += 1


@pytest.mark.parametrize("steps", [5, 2**31 - 1, 2**31 + 5])
def test_steps_beyond_an_int32_stay_at_the_largest(steps, experience):
    def apply(params, context, observation, state):
        return jnp.broadcast_to(context.steps, len(observation)), state, ()

    observation, reward, first = (leaf[0] for leaf in experience)
    one, other = InferenceCore(Policy(apply), SLOTS), SlotCore(Policy(apply), SLOTS, [SLOTS])
    acted = (
        one.step_all(2.0, 0, steps, first, reward, observation),
        other.step(2.0, np.arange(SLOTS), np.zeros(SLOTS, np.int32), steps, first, reward, observation),
    )
    for each in acted:
        np.testing.assert_array_equal(each.action, min(steps, 2**31 - 1))


def test_a_step_leaves_the_other_slots_alone(experience):
    observation, reward, first = experience
    core = seated([4])
    everybody = np.arange(4), np.zeros(4, np.int32), 0, first[0, :4], reward[0, :4], observation[0, :4]
    core.step(2.0, *everybody)
    # Three rows fill the batch: they are nobody's.
    core.step(2.0, np.array([2]), np.array([1], np.int32), 0, *(leaf[1, 2:3] for leaf in (first, reward, observation)))
    again = core.step(
        2.0, np.arange(4), np.full(4, 9, np.int32), 0, np.zeros(4, np.bool_), reward[2, :4], observation[2, :4]
    )

    alone = seated([4])
    alone.step(2.0, *everybody)
    kept = alone.step(
        2.0, np.arange(4), np.full(4, 9, np.int32), 0, np.zeros(4, np.bool_), reward[2, :4], observation[2, :4]
    )
    np.testing.assert_allclose(again.state["memory"][[0, 1, 3]], kept.state["memory"][[0, 1, 3]], rtol=1e-5)
    assert np.abs(again.state["memory"][2] - kept.state["memory"][2]).max() > 1e-3


def test_a_step_writes_nothing_into_the_arrays_that_a_policy_begins_with(experience):
    observation, reward, first = experience
    buffer = np.zeros(4096, np.uint8)
    start = -buffer.ctypes.data % 64  # where JAX shares NumPy's memory on the CPU
    rows = SLOTS + 1  # one that nobody has
    memory = buffer[start : start + 4 * rows * UNITS].view(np.float32).reshape(rows, UNITS)

    def init_state(batch):
        return {"memory": memory if batch == rows else np.zeros((batch, UNITS), np.float32)}

    core = SlotCore(recurrent_policy()._replace(init_state=init_state), SLOTS, [SLOTS])
    core.assign_slots(np.arange(SLOTS), slot_keys(KEY, SLOTS), np.zeros(SLOTS, np.float32))
    for time in range(2):
        ticks = np.full(SLOTS, time, np.int32)
        core.step(2.0, np.arange(SLOTS), ticks, 0, first[time], reward[time], observation[time])
    assert not buffer.any()


def test_nothing_is_compiled_after_the_warm_up(experience):
    observation, reward, first = experience
    core, rng = seated(bucket_sizes(SLOTS)), np.random.default_rng(0)
    core.warm_up(2.0, observation[0, :1])
    compiled = core.compilations()
    assert compiled == len(bucket_sizes(SLOTS))
    for count in [1, *rng.integers(1, SLOTS + 1, 20)]:
        slots = rng.permutation(SLOTS)[:count]
        ticks = np.zeros(len(slots), np.int32)
        core.step(2.0, slots, ticks, 0, first[0, slots], reward[0, slots], observation[0, slots])
    assert core.compilations() == compiled


def test_refuses_more_than_it_was_made_for(experience):
    observation, reward, first = experience
    core = seated([2])
    with pytest.raises(ValueError, match="3 environments at once, and at most 2"):
        core.step(2.0, np.arange(3), np.zeros(3, np.int32), 0, first[0, :3], reward[0, :3], observation[0, :3])


@pytest.mark.parametrize(
    ("most", "expected"), [(1, [1]), (2, [1, 2]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 9]), (24, [1, 2, 4, 8, 16, 24])]
)
def test_bucket_sizes(most, expected):
    assert bucket_sizes(most) == expected
