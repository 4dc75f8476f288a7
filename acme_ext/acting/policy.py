"""The contract of acting: a pure function, batched over environments."""

from collections.abc import Callable
from typing import NamedTuple

from acme_ext.types import Array, Params, Tree


class Context(NamedTuple):
    """What a policy may know of an environment's place in the run, apart from its observation."""

    key: Array  # [B] a random key for each environment, fresh for this step
    steps: Array  # [] int32: environment steps the run has taken so far, of all its actors
    rank: Array  # [B] float32: which of the run's exploring environments this is, i / (N - 1) in [0, 1]; 0 if alone
    reward: Array  # [B] float32: came with the observation, as the environment gave it; 0 at an episode's first
    first: Tree = ()  # [B] bool: begins an episode; there for a policy with recurrent state or a carry only
    carry: Tree = ()  # [B, ...] the policy's, see `Carry`; nothing for a policy without one


class Carry(NamedTuple):
    """What a policy keeps for each environment that is no recurrent state: nobody else resets it, it is never stored in
    replay, and its buffers are written in place.
    """

    run: Tree = ()  # [B, ...] outlives episodes and is saved with the actor: a bandit, moving averages
    episode: Tree = ()  # [B, ...] is worth nothing after the episode, and not saved; the policy empties it at `first`


class Kept(NamedTuple):
    """What a policy with a carry returns in the place of its recurrent state."""

    state: Tree  # [B, ...] recurrent
    carry: Carry  # [B, ...]


def _no_state(batch: int) -> Tree:
    del batch
    return ()


class Policy(NamedTuple):
    """How an agent acts, always for a batch of environments `[B, ...]`; one environment is B = 1.

    The same two functions serve one process, an actor with many environments and an inference server. They are pure and
    are compiled by whoever calls them. All randomness comes from `context.key`, a key for each environment, so that an
    environment's actions depend on who else is in the batch by rounding alone: a matrix product rounds a row by the
    size of the batch, the row's place in it and the processor.
    """

    apply: Callable[[Params, Context, Tree, Tree], tuple[Array, Tree, Tree]]
    """`(params, context, observation [B, ...], state [B, ...]) -> (action [B, ...], state, extras [B, ...])`; the
    extras go into replay with the action."""

    init_state: Callable[[int], Tree] = _no_state
    """`batch -> state [B, ...]`: the recurrent state at the start of an episode."""

    init_carry: Callable[[int], Tree] = _no_state
    """`batch -> Carry [B, ...]` at the start of a run, or nothing. A policy with one finds it in `context.carry`, and
    returns `Kept` in the place of the state."""

    standing: Callable[[Tree], Tree] | None = None
    """`carry.run [B, ...] -> [...]`: what all environments together know of how to act best, as NumPy arrays whose sums
    over actors have the same meaning. The evaluation's policy is given it as its own `carry.run`, one for each
    environment."""

    threaded: bool = False
    """Whether it is compiled with the `threaded` of `compiling.jit`, as one with convolutions is in any case."""
