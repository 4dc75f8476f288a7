"""The interface of policies: pure functions, batched over environments."""

from collections.abc import Callable
from typing import NamedTuple

from acme_ext.types import Array, Params, Tree


class Context(NamedTuple):
    """A policy's inputs besides the observation and the recurrent state."""

    key: Array  # [B] a new random key for each environment in each step
    steps: Array  # [] int32: environment steps of the run so far, summed over all actors; at most 2**31 - 1
    rank: Array  # [B] float32: i / (N - 1) in [0, 1] for number i of the run's N exploring environments; 0 if N is 1
    reward: Array  # [B] float32: the environment's reward that came with the observation; 0 at an episode's start
    first: Tree = ()  # [B] bool: begins an episode; only for policies with a recurrent state or a memory
    memory: Tree = ()  # [B, ...] the policy's memory, see `PolicyMemory`; empty for a policy without one


class PolicyMemory(NamedTuple):
    """State that a policy keeps for each environment besides the recurrent state, such as a bandit's counts.

    Only the policy resets it. It is never stored in replay, and its buffers are updated in place.
    """

    run: Tree = ()  # [B, ...] outlives episodes and is saved with the actor: a bandit's counts, moving averages
    episode: Tree = ()  # [B, ...] is used within an episode and not saved; the policy resets it at `first`


class StateAndMemory(NamedTuple):
    """The value that a policy with a memory returns instead of its recurrent state."""

    state: Tree  # [B, ...] the recurrent state
    memory: PolicyMemory  # [B, ...]


def _no_state(batch: int) -> Tree:
    del batch
    return ()


class Policy(NamedTuple):
    """An agent's policy for a batch of environments `[B, ...]`; a single environment is a batch with B = 1.

    The functions are pure, and the caller compiles them. Runs in one process, actors of programs and inference servers
    use the same ones. All randomness comes from `context.key`, one key for each environment. The other environments of
    a batch therefore change an environment's actions only by rounding: a matrix product rounds a row differently
    depending on the batch size, the row's position and the processor.
    """

    apply: Callable[[Params, Context, Tree, Tree], tuple[Array, Tree, Tree]]
    """`(params, context, observation [B, ...], state [B, ...]) -> (action [B, ...], state, extras [B, ...])`; the
    extras are stored in replay with the action."""

    init_state: Callable[[int], Tree] = _no_state
    """`batch -> state [B, ...]`: the recurrent state at the start of an episode."""

    init_policy_memory: Callable[[int], Tree] = _no_state
    """`batch -> PolicyMemory [B, ...]`: the memory at the start of a run; `()` for a policy without one. A policy with
    a memory reads it from `context.memory`, and returns a `StateAndMemory` instead of the state."""

    shared_statistics: Callable[[Tree], Tree] | None = None
    """`memory.run [B, ...] -> [...]`: statistics over all environments, such as a bandit's, with which the evaluation
    policy chooses how to act. They are NumPy arrays that can be summed over actors. The evaluation policy receives the
    sum as its own `memory.run`, repeated for each environment."""

    threaded: bool = False
    """Whether to compile with the option `threaded` of `compiling.jit`; policies with convolutions always use it."""
