"""The state of a compiled run. The fields' names are those of its checkpoints."""

from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np

from acme_ext.types import Array, Tree


class RolloutState(NamedTuple):
    """The state of N environments and of the policy that acts in them."""

    environment: Tree  # [N] FunctionalState
    timestep: dm_env.TimeStep  # [N, ...] the newest
    policy: Tree  # [N, ...] the policy's recurrent state
    carry: Tree  # [N, ...] the policy's other state, see `acting.policy.PolicyMemory`
    keys: Array  # [N] random keys of the actions
    ticks: Array  # [] int32 number of calls of the policy, including those whose step was a reset
    steps: Array  # [] int32 environment steps, summed over the environments; resets don't count
    returns: Array  # [N] float32 return of the current episode so far
    lengths: Array  # [N] int32 steps of the current episode so far


class Ended(NamedTuple):
    """Sums over ended episodes."""

    episodes: Array  # [] int32
    returns: Array  # [] float32
    lengths: Array  # [] int32


NONE_ENDED = Ended(np.int32(0), np.float32(0), np.int32(0))  # type: ignore


class Learning(NamedTuple):
    """The learner's state."""

    state: Any  # state of the `LearnerCore`
    steps: Array  # [] int32 learner steps
    bad_step: Array  # [] int32 the first learner step with a loss, gradient or TD error that is not finite; -1: none
    metrics: dict[str, Array]  # [] each; of the newest learner step


class RunState(NamedTuple):
    """The whole state of one seed's run."""

    learning: Learning
    place: RolloutState
    ended: Ended  # episodes that ended since the actor's last log row
    replay: Any  # DeviceReplayState; empty for agents that learn from unrolls
    key: Array  # [] random key for sampling from the replay


class Scores(NamedTuple):
    """The state of an evaluation."""

    place: RolloutState
    finished: Array  # [N] int32 number of finished episodes
    returns: jax.Array  # [N, Q] float32 returns of the finished episodes
    lengths: jax.Array  # [N, Q] int32 their lengths
