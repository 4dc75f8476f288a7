"""Types of the data that actors, replays and learners exchange."""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import dm_env
import dm_env.specs

if TYPE_CHECKING:
    import jax
    import numpy as np

FIRST, MID, LAST = map(int, dm_env.StepType)
"""The kinds of time steps, as they are in batches."""

Tree = Any
"""A nest (dict, tuple, list, NamedTuple) of arrays, or of other leaves where a comment says so."""

Params = Any
"""A nest of network parameters."""

if TYPE_CHECKING:
    Array: TypeAlias = jax.Array | np.ndarray
else:  # avoids importing JAX
    Array = Any
"""A NumPy or a JAX array."""


class EnvironmentSpec(Protocol):
    """The specs of one environment, without a batch dimension; `acme.specs.EnvironmentSpec` implements it."""

    @property
    def observations(self) -> Tree: ...
    @property
    def actions(self) -> dm_env.specs.Array: ...
    @property
    def rewards(self) -> dm_env.specs.Array: ...
    @property
    def discounts(self) -> dm_env.specs.BoundedArray: ...


class OneStep(NamedTuple):
    """The first step of n-step transitions; fields as in `Transition`."""

    reward: Array  # [B]
    discount: Array  # [B]
    next_observation: Tree  # [B, ...]


class Transition(NamedTuple):
    """A batch of n-step transitions; time indices as in rlax.

    `reward` is the discounted sum of the n rewards between the two observations, `discount` the factor of a
    bootstrapped value: gamma**n times the environment's discounts. It is zero after a termination, and nonzero after a
    truncation.
    """

    observation: Tree  # [B, ...] o_{t-1}
    action: Array  # [B, ...] a_{t-1}
    reward: Array  # [B] R_t
    discount: Array  # [B] gamma_t
    next_observation: Tree  # [B, ...] o_t
    extras: Tree = ()  # [B, ...] the policy's further outputs
    one_step: Any = ()  # OneStep: only the first step, if the replay stores it too


class Sequence(NamedTuple):
    """A batch of sequences of T steps, time-major as losses expect it; one item is `[T, ...]`.

    Timestep t is the policy's input at time t, 0 <= t <= T; step t leads from timestep t to t + 1, 0 <= t < T. So the
    reward of step t is `reward[t + 1]`, and in rlax's terms `a_tm1 = action`, `r_t = reward[1:]`,
    `discount_t = discount`. The last timestep is for bootstrapping; it is also a first timestep if an episode ended
    just before it.

    `mask` is 0 where no step was taken: in the padding after the end of the data (all zeros) and, in sequences that
    cross episodes, between the last timestep of an episode and the first of the next. There, reward and discount are 0,
    so no return crosses it. A loss must leave out its errors at these steps (`mask * error`), and means and maxima must
    not count them. The step before is the last step of the episode and leads to its last observation: after a
    truncation (discount not 0), returns bootstrap from this observation as at any other step.
    """

    observation: Tree  # [T + 1, B, ...]
    reward: Array  # [T + 1, B] float32, the environment's reward with this observation; 0 at an episode's first
    first: Array  # [T + 1, B] bool: an episode starts here; recurrent state is reset before it
    action: Array  # [T, B, ...]
    discount: Array  # [T, B] float32, gamma times the environment's discount; 0 after a termination, not a truncation
    mask: Array  # [T, B] float32, 1 where the step was taken
    extras: Tree = ()  # [T, B, ...] the policy's further outputs; [T + 1, B, ...] in a replay with `last_extras`
    state: Tree = ()  # [B, ...] the policy's recurrent state before timestep 0


class PrioritizedExtras(NamedTuple):
    """A policy's extras, with the error that sets the initial priority of new items in a prioritized replay."""

    policy: Tree  # [B, ...] the policy's own
    largest_error: Array  # [B] the largest |TD error| that the learner has seen so far


def stored_extras(extras: Tree) -> Tree:
    """Returns the part of a policy's extras that the replay stores."""
    return extras.policy if isinstance(extras, PrioritizedExtras) else extras


class Sample(NamedTuple):
    """The input of a learner step."""

    data: Any  # Transition [B, ...] or Sequence [T, B, ...]
    weight: Array  # [B] importance weights in (0, 1]; 1 if the replay is not prioritized
    source: Array | None = None  # [B] 0: own experience, > 0: recorded data (`replay.Mixed`); None: only own

    @property
    def is_demo(self) -> Array:
        """`[B]` float32, 1 where an item is recorded data."""
        return 0 * self.weight if self.source is None else (self.source > 0).astype(self.weight.dtype)
