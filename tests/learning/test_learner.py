import json
import os
import pathlib
import subprocess
import sys

import acme.core
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax._src.array import ArrayImpl
from learners import ROW, Mailbox, dqn, dqn_batches, join, regression, regression_batches

from acme_ext.errors import RunError, UsageError
from acme_ext.learning import learner as learner_module
from acme_ext.learning.core import LearnerCore, LossOutput, single_loss_core
from acme_ext.learning.learner import Learner
from acme_ext.replay.table import RawBatch

KEY = jax.random.key(0)


def make(batches, core=None, *, decode=ROW.unpack, size=8, steps_per_call=1, **options):
    return Learner(
        core or regression(),
        join(batches, steps_per_call),
        decode,
        KEY,
        batch_size=size,
        steps_per_call=steps_per_call,
        **options,
    )


def assert_close(a, b, **tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_allclose(x, y, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


@pytest.mark.parametrize("kind", ["regression", "dqn"])
def test_fused_steps_are_the_single_ones(kind, monkeypatch):
    if kind == "dqn":
        core, replay = dqn(prioritized=True)
        batches, size, decode = dqn_batches(8, 16), 16, replay.decode
    else:
        core, batches, size, decode = regression(), regression_batches(8, 8), 8, ROW.unpack
    results = []
    for steps_per_call, unrolled in ((1, False), (4, False), (2, True)):
        monkeypatch.setattr(learner_module.compiling, "is_convolutional", lambda state, answer=unrolled: answer)
        mailbox = Mailbox()
        learner = make(batches, core, decode=decode, size=size, steps_per_call=steps_per_call, priorities=mailbox)
        losses = []
        for _ in range(8 // steps_per_call):
            learner.step()
            losses.append(learner.metrics()["loss"])
        assert learner.steps == 8
        assert learner.calls == 8 // steps_per_call
        results.append((learner.save(), mailbox.pairs(), losses))
    state, priorities, losses = results[0]
    assert len(priorities) == 8 * size
    assert (state.core.core.core if kind == "dqn" else state).steps == 8
    for other, other_priorities, other_losses in results[1:]:
        assert_close(other, state)
        assert other_priorities == pytest.approx(priorities, rel=1e-4, abs=1e-5)
        # Metrics are means over the steps of a call.
        means = np.mean(np.reshape(losses, (len(other_losses), -1)), axis=1)
        np.testing.assert_allclose(other_losses, means, rtol=1e-4)


def test_learns():
    learner = make(regression_batches(600, 8), steps_per_call=4)
    for _ in range(150):
        learner.step()
    (params,) = learner.get_variables(["policy"])
    np.testing.assert_allclose(params.w, [1, 2, 3], atol=0.05)
    np.testing.assert_allclose(params.b, 0.5, atol=0.05)
    assert learner.metrics()["loss"] < 1e-2


def test_is_a_learner_like_any_other():
    learner = make(regression_batches(4, 8))
    assert isinstance(learner, acme.core.Learner)
    learner.run(num_steps=4)
    assert learner.steps == 4
    with pytest.raises(StopIteration):
        learner.step()
    assert learner.steps == 4


def count_traces(core, counts):
    def step(state, sample):
        counts.append(1)
        return core.step(state, sample)

    return LearnerCore(core.init, step, core.variables)


@pytest.mark.parametrize(
    "convolutional",
    [False, True],
)
def test_unrolls_convolutions_on_the_cpu(convolutional):
    # What is traced once for each step is unrolled.
    counts = []
    shape = (1, 1, 3, 1) if convolutional else (3, 1)

    def loss(params, target_params, data, weight, key):
        return jnp.mean((data["x"] @ params.reshape(3, 1) - data["y"]) ** 2), LossOutput({})

    core = single_loss_core(loss, lambda key: jnp.zeros(shape), optax.sgd(0.1))
    learner = make(regression_batches(6, 8), count_traces(core, counts), steps_per_call=6)
    learner.step()
    assert (len(counts) >= 6) == convolutional


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_step_waits_for_the_call_before_the_last_alone(monkeypatch, prioritized):
    learner = make(
        regression_batches(9, 8),
        regression(prioritized=prioritized),
        steps_per_call=3,
        priorities=Mailbox() if prioritized else None,
    )
    learner.step()  # compiles
    waited_for = []

    def waited(*_):
        raise AssertionError("waited for the device")

    with monkeypatch.context() as patch:
        patch.setattr(jax, "device_get", waited)
        patch.setattr(jax, "block_until_ready", waited)
        patch.setattr(ArrayImpl, "_value", property(waited))
        patch.setattr(ArrayImpl, "block_until_ready", lambda loss: waited_for.append(loss))
        with pytest.raises(AssertionError):
            float(learner.save().steps)
        learner.step()
        assert waited_for == []
        learner.step()
        assert len(waited_for) == 1
        learner.get_variables(["policy"])
        with pytest.raises(AssertionError):
            learner.metrics()
    assert learner.metrics()["loss"] > 0


def poison(batches, step):
    """The batches with a value in the one of SGD step `step` (the first is 1) that is not a number."""
    rows = batches[step - 1].rows.copy()
    data = ROW.unpack(rows)
    data["y"][3] = np.nan
    batches[step - 1] = batches[step - 1]._replace(rows=ROW.pack([data["x"], data["y"]]))
    return batches


@pytest.mark.parametrize("unrolled", [False, True])
@pytest.mark.parametrize("bad", [1, 4, 5, 7, 8])
def test_a_loss_that_is_not_finite_is_named_by_its_step(unrolled, bad, monkeypatch):
    monkeypatch.setattr(learner_module.compiling, "is_convolutional", lambda state: unrolled)
    learner = make(poison(regression_batches(12, 8), bad), steps_per_call=4)
    for call in range(1, 4):
        learner.step()
        if call * 4 < bad:
            learner.check()
            assert np.isfinite(learner.metrics()["loss"])
        else:  # the first one, also later
            for look in (learner.check, learner.metrics):
                with pytest.raises(RunError, match=f"not finite at learner step {bad}: the run stops"):
                    look()


def test_steps_are_named_on_from_a_resume():
    learner = make(poison(regression_batches(4, 8), 3), steps_per_call=2)
    learner.steps = 100
    learner.step()
    learner.check()
    learner.step()
    with pytest.raises(RunError, match="at learner step 103:"):
        learner.check()


def test_a_gradient_that_is_not_finite_is_noticed_too():
    # The root of a mean square of zero.
    batches = regression_batches(1, 8)
    batches[0] = batches[0]._replace(rows=ROW.pack([np.zeros((8, 3), np.float32), np.zeros(8, np.float32)]))
    learner = make(batches, regression(root=True))
    learner.step()
    with pytest.raises(RunError, match="the loss, gradient or TD error was not finite at learner step 1:"):
        learner.check()


@pytest.mark.parametrize("prioritized", [True, False])
def test_a_td_error_that_is_no_number_is_noticed_where_it_counts(prioritized):
    class Priorities:
        def put(self, errors):
            pass

        def settle(self):
            pass

    def step(state, sample):
        return state, {"loss": jnp.zeros(())}, jnp.where(jnp.arange(8) == 3, jnp.nan, 1.0)

    core = LearnerCore(lambda key: jnp.zeros(()), step, lambda state: {"policy": state})
    learner = make(regression_batches(1, 8), core, priorities=Priorities() if prioritized else None)
    learner.step()
    if prioritized:
        with pytest.raises(RunError, match="TD error was not finite at learner step 1:"):
            learner.check()
    else:
        learner.check()


def test_a_core_without_a_gradient_norm_is_checked_by_its_loss():
    def step(state, sample):
        return state, {"loss": jnp.mean(sample.data["y"])}, None

    core = LearnerCore(lambda key: jnp.zeros(()), step, lambda state: {"policy": state})
    learner = make(poison(regression_batches(3, 8), 2), core)
    learner.step()
    learner.check()
    learner.step()
    with pytest.raises(RunError, match="at learner step 2:"):
        learner.check()


def test_a_restored_learner_goes_on_where_the_saved_one_would():
    batches = regression_batches(12, 8)
    whole = make(batches, steps_per_call=2)
    for _ in range(6):
        whole.step()
    before = make(batches[:6], steps_per_call=2)
    for _ in range(3):
        before.step()
    saved = jax.device_get(before.save())
    after = make(batches[6:], steps_per_call=2)
    after.restore(saved)
    after.steps = before.steps
    for _ in range(3):
        after.step()
    assert after.steps == 12
    assert_close(after.save(), whole.save(), rtol=0, atol=0)
    assert after.metrics() == whole.metrics()


def test_what_was_saved_is_not_changed_by_later_steps():
    learner = make(regression_batches(4, 8))
    learner.step()
    saved = learner.save()
    copied = jax.tree.map(np.asarray, saved.params)
    (published,) = learner.get_variables(["policy"])
    for _ in range(3):
        learner.step()
    assert_close(saved.params, copied, rtol=0, atol=0)
    assert_close(published, copied, rtol=0, atol=0)
    assert (np.asarray(learner.save().params.w) != copied.w).any()


def test_priorities_go_with_their_keys():
    mailbox = Mailbox()
    batches = regression_batches(4, 8)
    learner = make(batches, steps_per_call=2, priorities=mailbox)
    learner.step()
    pairs = mailbox.pairs()
    assert list(pairs) == list(range(16))
    # Of the first SGD step: all parameters are zero, and so the error is y.
    np.testing.assert_allclose([pairs[i] for i in range(8)], np.abs(ROW.unpack(batches[0].rows)["y"]), rtol=1e-6)
    assert not mailbox.closed
    learner.close()
    assert mailbox.closed


def test_variables_come_in_the_order_asked_for():
    core = regression()
    core = LearnerCore(core.init, core.step, lambda state: {"policy": 1, "critic": 2})
    learner = make(regression_batches(1, 8), core)
    assert learner.get_variables(["critic", "policy"]) == [2, 1]


def test_before_the_first_step_there_are_no_metrics():
    learner = make(regression_batches(1, 8))
    learner.check()
    assert learner.metrics() == {}
    assert (learner.steps, learner.calls) == (0, 0)


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(UsageError, match="batch_size 8 does not divide over 3 devices"):
        make(regression_batches(1, 8), devices=jax.devices() * 3)


def test_one_named_device():
    learner = make(regression_batches(4, 8), steps_per_call=2, devices=jax.devices()[:1])
    learner.step()
    default = make(regression_batches(4, 8), steps_per_call=2)
    default.step()
    assert_close(learner.save(), default.save())


@pytest.mark.release
def test_four_devices_learn_what_one_does():
    folder = pathlib.Path(__file__).parent
    flags = "--xla_force_host_platform_device_count=4"
    path = os.pathsep.join([str(folder), str(folder.parents[1])])
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, str(folder / "data_parallel.py")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for result in json.loads(done.stdout.splitlines()[-1]):
        assert result["devices"] == [4]
        assert result["restored"] == [4]
        assert result["variables"] == 1
        assert result["moved"] > 1e-3
        # The importance weights are scaled by the largest of the whole batch, not of each device's part.
        assert result["difference"] < 1e-5
        assert result["priorities"] < 1e-4
        assert result["losses"][0] == pytest.approx(result["losses"][1], rel=1e-4)


def test_items_are_weighed_by_the_exponent_of_the_step():
    core = LearnerCore(
        lambda key: jnp.zeros(()),
        lambda state, sample: (state, {"loss": jnp.min(sample.weight)}, None),
        lambda state: {"policy": state},
    )
    raw = RawBatch(np.zeros((4, 1), np.uint8), np.arange(4, dtype=np.uint64), np.float32([0.5, 0.125, 0.5, 0.125]))
    learner = Learner(
        core,
        iter([raw] * 2),
        lambda rows: rows,
        jax.random.key(0),
        batch_size=2,
        steps_per_call=2,
        importance_exponent=lambda steps: steps / 4,
    )
    means = []
    for _ in range(2):
        learner.step()
        means.append(learner.metrics()["loss"])
    np.testing.assert_allclose(means, [(1 + 0.25**0.25) / 2, (0.25**0.5 + 0.25**0.75) / 2], rtol=1e-5)
