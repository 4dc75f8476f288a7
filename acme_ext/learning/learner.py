"""The learner, which all agents share."""

import collections
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from acme_ext import interfaces
from acme_ext.errors import NotFiniteError, UsageError
from acme_ext.learning.core import LearnerCore, is_finite
from acme_ext.learning.priorities import Errors, PriorityUpdater
from acme_ext.learning.prioritized import importance_weights
from acme_ext.types import Array, Params, Sample
from acme_ext.utils import compiling

if TYPE_CHECKING:
    from acme_ext.replay.table import RawBatch

_MOST_CALLS = 2  # unfinished calls: the one that runs, and the next one


def over_devices(batch_size: int, count: int) -> None:
    """Raises UsageError if a batch can't be split over a number of devices."""
    if batch_size % count:
        raise UsageError(f"batch_size {batch_size} does not divide over {count} devices.")


class Learner(interfaces.Learner):
    """Runs any `LearnerCore`: several learner steps per compiled call, on one device or data-parallel on several.

    A call of `step` takes one raw batch of `steps_per_call * batch_size` items and moves it to the device as bytes. The
    device unpacks it and makes `steps_per_call` learner steps. The call doesn't wait for these steps, only for those of
    the call before the last: otherwise JAX would accept up to 32 calls, and batches would wait in them while actors use
    old parameters. Metrics stay on the device until `metrics()` is called. A loss
    that is not finite is recorded on the device; `check` and `metrics` raise an error for it.

    Args:
        core: the algorithm.
        batches: raw batches of `steps_per_call * batch_size` items.
        decode: unpacks the bytes of `batch_size` items, inside the compiled step.
        key: random key that initializes the core.
        batch_size: items per learner step.
        steps_per_call: learner steps in one compiled call.
        priorities: sends the core's errors to a prioritized replay; None for other replays.
        importance_exponent: `learner steps -> beta`, the exponent of the importance weights, for a prioritized replay.
        devices: devices that each batch is split over; each holds all parameters. None: JAX's default device.

    Raises:
        UsageError: `batch_size` is not a multiple of the number of devices.
    """

    def __init__(
        self,
        core: LearnerCore,
        batches: "Iterator[RawBatch]",
        decode: Callable[[Array], Any],
        key: Array,
        *,
        batch_size: int,
        steps_per_call: int = 1,
        priorities: PriorityUpdater | None = None,
        importance_exponent: Callable[[Array], Array] | None = None,
        devices: Sequence[jax.Device] | None = None,
    ):
        over_devices(batch_size, len(devices) if devices else 1)
        self._core, self._batches, self._decode = core, batches, decode
        self._steps_per_call, self._batch_size = steps_per_call, batch_size
        self._priorities, self._importance_exponent = priorities, importance_exponent
        self._replicated: Any = None
        self._sharded: Any = devices[0] if devices else None
        if devices and len(devices) > 1:
            mesh = Mesh(np.asarray(devices), ("data",))
            self._replicated = NamedSharding(mesh, PartitionSpec())
            self._sharded = NamedSharding(mesh, PartitionSpec(None, "data"))
        state = jax.jit(core.init)(key)
        self._state = jax.device_put(state, self._replicated or self._sharded)
        # On the CPU, XLA runs a loop's body on one thread, so with convolutions the loop is unrolled there.
        self._scan = not (jax.default_backend() == "cpu" and compiling.is_convolutional(state))
        # The first learner step whose loss, gradient or TD errors were not finite; -1: none. Stored on the device.
        self._bad_step: Array = jax.device_put(jnp.full((), -1, jnp.int32), self._replicated or self._sharded)
        self._metrics: dict[str, Array] = {}
        self._unfinished: collections.deque[jax.Array] = collections.deque()  # a loss of each call that may still run
        self._update = compiling.jit(self._make_update(), threaded=compiling.is_wide(state, batch_size))
        self.steps = 0
        """Learner steps taken, including those before a resume."""
        self.calls = 0
        """Calls of `step` on this object."""

    def step(self) -> None:
        """Waits for the next raw batch, and starts `steps_per_call` learner steps on it."""
        while len(self._unfinished) >= _MOST_CALLS:
            self._unfinished.popleft().block_until_ready()
        self.settle()
        raw = next(self._batches)
        lead = (self._steps_per_call, self._batch_size)
        rows = raw.rows.reshape(lead + raw.rows.shape[1:])
        probability = raw.probability.reshape(lead)
        source = None if raw.source is None else raw.source.reshape(lead)
        if self._sharded is not None:
            rows, probability, source = jax.device_put((rows, probability, source), self._sharded)
        self._state, self._bad_step, self._metrics, errors = self._update(
            self._state, self._bad_step, np.int32(self.steps), rows, probability, source
        )
        self._unfinished.append(cast(jax.Array, self._metrics["loss"]))
        self.steps += self._steps_per_call
        self.calls += 1
        if self._priorities is not None:
            self._priorities.put(Errors(raw.keys, errors, raw.source))

    def settle(self) -> None:
        """Applies the errors of the calls so far to a table whose next batch must know them, see `PriorityUpdater`."""
        if self._priorities is not None:
            self._priorities.settle()

    def metrics(self) -> dict[str, float]:
        """Returns the metrics of the latest call, averaged over its steps; waits for the device.

        Raises:
            NotFiniteError: a loss, gradient or TD error was not finite; the message names the learner step.
        """
        self.check()
        return {name: float(value) for name, value in jax.device_get(self._metrics).items()}

    def check(self) -> None:
        """Waits for the device; raises NotFiniteError if a loss, gradient or TD error was not finite so far."""
        if (bad := int(self._bad_step)) >= 0:
            raise NotFiniteError(f"the loss, gradient or TD error was not finite at learner step {bad}: the run stops.")

    def get_variables(self, names: Sequence[str]) -> list[Params]:
        variables = self._core.variables(self._state)
        return [variables[name] for name in names]

    def save(self) -> Any:
        """Returns the core's state."""
        return self._state

    def restore(self, state: Any) -> None:
        """Sets the core's state; the caller must restore `steps` itself."""
        self._state = jax.device_put(state, self._replicated or self._sharded)

    def close(self) -> None:
        """Sends the remaining priorities."""
        if self._priorities is not None:
            self._priorities.close()

    def _make_update(self) -> Callable:
        core, decode, count = self._core, self._decode, self._steps_per_call

        def sgd(carry, packed):
            state, bad_step, steps = carry
            rows, probability, source = packed
            weight = jnp.ones_like(probability)
            if self._importance_exponent is not None:
                weight = importance_weights(probability, self._importance_exponent(steps))
            state, metrics, errors = core.step(state, Sample(decode(rows), weight, source))
            errors = errors if self._priorities is not None else None
            steps = steps + 1
            bad_step = jnp.where((bad_step < 0) & ~is_finite(metrics, errors), steps, bad_step)
            return (state, bad_step, steps), (metrics, errors)

        def update(state, bad_step, steps, rows, probability, source):
            carry, packed = (state, bad_step, steps), (rows, probability, source)
            if self._scan and count > 1:
                carry, out = jax.lax.scan(sgd, carry, packed)
            else:
                outs = []
                for i in range(count):
                    carry, one = sgd(carry, jax.tree.map(lambda x, i=i: x[i], packed))
                    outs.append(one)
                out = jax.tree.map(lambda *leaves: jnp.stack(leaves), *outs)
            metrics, errors = out
            state, bad_step, _ = carry
            return state, bad_step, jax.tree.map(jnp.mean, metrics), errors

        return update
