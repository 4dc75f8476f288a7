"""The data that travels round the ring."""

from typing import Any, NamedTuple, Protocol

import dm_env.specs

Tree = Any
"""A nest (dict, tuple, list, NamedTuple) of arrays, or of what a comment says."""

Params = Any
"""A nest of network parameters."""

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


class Sample(NamedTuple):
    """What a learner's step is given: the data and how it was drawn."""

    data: Any  # Transition [B, ...] or a sequence [T, B, ...]
    probability: Array  # [B] with which the replay drew each item
