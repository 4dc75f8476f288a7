"""Applies a policy to some of many environments at a time, as an inference server does for its actors."""

from collections.abc import Sequence

import jax
import numpy as np
import tree

from acme_ext.acting.inference import MAX_STEPS, Acted, InferenceCore
from acme_ext.acting.policy import Policy
from acme_ext.types import Params, Tree
from acme_ext.utils.packing import Packing


class SlotCore(InferenceCore):
    """An `InferenceCore` whose environments can be stepped in any order and in any batch.

    Padding changes an environment's actions only by rounding.

    Args:
        policy: the policy.
        slots: S, the maximum number of environments.
        buckets: batch sizes that a `step` is padded to; one program is compiled for each. The largest is the maximum
            number of environments in a call.
    """

    def __init__(self, policy: Policy, slots: int, buckets: Sequence[int]):
        super().__init__(policy, slots, spare=1)  # for padding rows
        self._scratch, self._buckets, self._state_packing = slots, sorted(buckets), Packing()
        self.rows = self.padded_rows = 0
        """Environments stepped by `step`, without and with padding."""

    def step(
        self,
        params: Params,
        slots: np.ndarray,
        ticks: np.ndarray,
        steps: int,
        first: np.ndarray,
        reward: np.ndarray,
        observation: Tree,
        *,
        with_state: bool = True,
    ) -> Acted:
        """Computes the actions of some slots.

        Args:
            params: the policy's parameters.
            slots: `[K]` int32, the slots, without duplicates.
            ticks: `[K]` int32, each slot's number of steps so far; it is folded into the slot's key.
            steps: environment steps that the run has taken.
            first: `[K]` bool, whether an episode begins, so that the recurrent state is reset.
            reward: `[K]` float32, the rewards that came with the observations.
            observation: `[K, ...]`.
            with_state: whether to return the recurrent state from before the step; if not, it is `()`.
        """
        if self._compiled is None:
            self._compiled = self._compile(self._apply_some, params, donate_argnums=3)
        count = len(slots)
        size = next((bucket for bucket in self._buckets if bucket >= count), None)
        if size is None:
            raise ValueError(f"{count} environments at once, and at most {self._buckets[-1]} were asked for")

        def pad(leaf: np.ndarray, value: int = 0) -> np.ndarray:
            if len(leaf) == size:
                return leaf
            padded = np.full((size, *leaf.shape[1:]), value, leaf.dtype)
            padded[:count] = leaf
            return padded

        packed, before, (self._table, self._memory) = self._compiled(
            params,
            self._keys,
            self._ranks,
            (self._table, self._memory),
            pad(slots, self._scratch),
            pad(ticks),
            np.int32(min(steps, MAX_STEPS)),
            pad(first),
            pad(reward),
            observation if count == size else tree.map_structure(pad, observation),
        )
        self.rows, self.padded_rows = self.rows + count, self.padded_rows + size
        action, extras = self._packing.unpack(packed, count)
        return Acted(action, extras, self._state_packing.unpack(before, count) if with_state else ())

    def _apply_some(self, params, keys, ranks, table, slots, *arguments):
        state, memory = jax.tree.map(lambda leaf: leaf[slots], table)
        packed, state, *after = self._apply(params, keys[slots], ranks[slots], state, memory, *arguments)
        table = jax.tree.map(lambda leaf, rows: leaf.at[slots].set(rows), table, tuple(after))
        return packed, self._state_packing.pack(state), table

    def warm_up(self, params: Params, observation: Tree) -> None:
        """Compiles the program of every bucket, for observations `[1, ...]` like this one.

        No slot's state changes. The counts of `step` are reset.
        """
        for size in self._buckets:
            slots = np.full(size, self._scratch, np.int32)
            zeros = np.zeros(size, np.int32)
            repeated = tree.map_structure(lambda leaf, size=size: np.repeat(leaf, size, axis=0), observation)
            self.step(params, slots, zeros, 0, np.ones(size, np.bool_), np.zeros(size, np.float32), repeated)
        self.rows = self.padded_rows = 0


def bucket_sizes(most: int) -> list[int]:
    """Returns batch sizes for up to `most` environments: the powers of two below it, and `most` itself.

    With these sizes, less than half of a batch is padding.
    """
    return [*(2**i for i in range((most - 1).bit_length())), most]
