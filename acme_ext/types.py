"""The data that travels round the ring."""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import dm_env.specs

if TYPE_CHECKING:
    import jax
    import numpy as np

Tree = Any
"""A nest (dict, tuple, list, NamedTuple) of arrays, or of what a comment says."""

Params = Any
"""A nest of network parameters."""

if TYPE_CHECKING:
    Array: TypeAlias = jax.Array | np.ndarray
else:  # JAX is not imported for it
    Array = Any
"""A NumPy or a JAX array."""


class EnvironmentSpec(Protocol):
    """What an agent knows of its environment; `acme.specs.EnvironmentSpec` is one. All specs are of one environment,
    unbatched.
    """

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
    """A batch of n-step transitions; the time names are rlax's.

    `reward` is the discounted sum of the n rewards between the two observations, `discount` the product of everything
    that multiplies a bootstrapped value: gamma**n and the environment's discounts. It is zero after a termination, and
    is not after a truncation.
    """

    observation: Tree  # [B, ...] o_{t-1}
    action: Array  # [B, ...] a_{t-1}
    reward: Array  # [B] R_t
    discount: Array  # [B] gamma_t
    next_observation: Tree  # [B, ...] o_t
    extras: Tree = ()  # [B, ...] what the policy gave with the action
    one_step: Any = ()  # OneStep, the first step alone, where the replay keeps it too


class Sequence(NamedTuple):
    """A batch of sequences of T steps, in time-major order as losses take it; one item of it is `[T, ...]`.

    Timestep t is what the policy was given at time t, 0 <= t <= T; step t leads from timestep t to t + 1, 0 <= t < T.
    So the reward of step t is `reward[t + 1]`, and with rlax's names `a_tm1 = action`, `r_t = reward[1:]`,
    `discount_t = discount`. The last timestep is there to bootstrap from; it is a first one too where an episode ended
    just before it.

    `mask` is 0 for what is no step: padding after the end of the data, all of it zeros, and in sequences that go on
    into the next episode the way from an episode's last timestep to the next one's first, which no action took. There
    reward and discount are 0, so nothing flows back over it; a loss has to leave its own error at these steps out
    (`mask * error`), and no mean or maximum may count them. The step before it is the episode's last, and the timestep
    between the two its last observation: a truncation (discount not 0) bootstraps from there like any other step.
    """

    observation: Tree  # [T + 1, B, ...]
    reward: Array  # [T + 1, B] float32, came with the observation, as the environment gave it; 0 at an episode's first
    first: Array  # [T + 1, B] bool: begins an episode, so recurrent state is reset before it
    action: Array  # [T, B, ...]
    discount: Array  # [T, B] float32, complete: gamma times the environment's; 0 after a termination, not a truncation
    mask: Array  # [T, B] float32, 1 where the step was taken
    extras: Tree = ()  # [T, B, ...] what the policy gave with the action
    state: Tree = ()  # [B, ...] the policy's recurrent state before it was given timestep 0


class PrioritizedExtras(NamedTuple):
    """A policy's extras with what new items of a prioritized replay are first given priorities by."""

    policy: Tree  # [B, ...] the policy's own
    largest_error: Array  # [B] the largest |TD error| that the learner has seen so far


def stored_extras(extras: Tree) -> Tree:
    """Returns the part of a policy's extras that may be stored."""
    return extras.policy if isinstance(extras, PrioritizedExtras) else extras


class Sample(NamedTuple):
    """What a learner's step is given."""

    data: Any  # Transition [B, ...] or Sequence [T, B, ...]
    weight: Array  # [B] importance weights in (0, 1]; 1 where the replay is not prioritized
    source: Array | None = None  # [B] 0 for own experience, above for recorded data (`replay.Mixed`); None: all is own

    @property
    def is_demo(self) -> Array:
        """`[B]` float32, 1 where an item is recorded data."""
        return 0 * self.weight if self.source is None else (self.source > 0).astype(self.weight.dtype)
