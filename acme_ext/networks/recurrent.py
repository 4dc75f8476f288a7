"""Networks with a memory, over sequences in time-major order: the contract that all recurrent agents share.

A recurrent network is given, at every timestep, the observation, the action before it, the reward that came with it and
whether it begins an episode. Its memory is stored with sequences in replay, so that learning goes on from where acting
was.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from dm_env.specs import DiscreteArray
from jax import lax

from acme_ext.networks import layers
from acme_ext.types import Array, EnvironmentSpec, Params, Sequence, Tree
from acme_ext.utils import checks

NO_ACTION = -1  # stands for the action before an episode's first timestep, where actions are discrete


class LSTMState(NamedTuple):
    """What an LSTM remembers."""

    hidden: Array  # [B, H] its last output
    cell: Array  # [B, H]


class LSTM(hk.Module):
    """An LSTM (Hochreiter and Schmidhuber 1997; with the forget gate of Gers et al. 2000, which starts open).

    i, f, g, o = W x_t + U h_{t-1} + b;  c_t = sigma(f + 1) c_{t-1} + sigma(i) tanh(g);  h_t = sigma(o) tanh(c_t)

    The inputs of all steps go through W in one product, before the loop over time.

    Args:
        size: H.
    """

    def __init__(self, size: int, name: str | None = None):
        super().__init__(name)
        self._size = size

    def __call__(self, inputs: Array, first: Array, state: LSTMState) -> tuple[Array, LSTMState]:
        """Runs over a sequence; see `RecurrentCore.make`."""
        size = self._size
        projected = layers.Linear(4 * size)(inputs)
        recurrent = hk.get_parameter("recurrent", (size, 4 * size), init=layers.uniform(size))

        def step(state: LSTMState, now: tuple[Array, Array]) -> tuple[LSTMState, Array]:
            projected, first = now
            hidden, cell = (jnp.where(first[:, None], 0.0, leaf) for leaf in state)
            i, f, g, o = jnp.split(projected + hidden @ recurrent, 4, axis=-1)
            cell = jax.nn.sigmoid(f + 1.0) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return LSTMState(hidden, cell), hidden

        state, outputs = lax.scan(step, state, (projected, first))
        return outputs, state


class RecurrentCore(NamedTuple):
    """The part of a network that remembers."""

    make: Callable[[], Callable[[Array, Array, Tree], tuple[Array, Tree]]]
    """Makes `(inputs [T, B, F], first [T, B], state [B, ...]) -> (outputs [T, B, H], state after the last step)`,
    inside a Haiku transform. Where `first` is true an episode begins, and the state is reset before that step."""

    init_state: Callable[[int], Tree]
    """`batch -> state [B, ...]` at an episode's start. NumPy arrays: a replay is described by it in processes that are
    still to be forked, where JAX must not start."""


MakeCore = Callable[[int], RecurrentCore]
"""`size -> core`, of so many units."""


def lstm(size: int) -> RecurrentCore:
    """Returns an LSTM of so many units."""

    def init_state(batch: int) -> LSTMState:
        return LSTMState(np.zeros((batch, size), np.float32), np.zeros((batch, size), np.float32))

    return RecurrentCore(lambda: LSTM(size), init_state)


def gru(size: int) -> RecurrentCore:
    """Returns a gated recurrent unit (Cho et al. 2014) of so many units."""
    return haiku_core(lambda: hk.GRU(size), lambda batch: np.zeros((batch, size), np.float32))


def haiku_core(make_cell: Callable[[], hk.RNNCore], init_state: Callable[[int], Tree]) -> RecurrentCore:
    """Returns the core of a Haiku cell, which steps through time and is reset where an episode begins.

    Args:
        make_cell: makes the cell, inside a Haiku transform.
        init_state: see `RecurrentCore`.
    """

    def make() -> Callable[[Array, Array, Tree], tuple[Array, Tree]]:
        cell = make_cell()

        def step(state: Tree, now: tuple[Array, Array]) -> tuple[Tree, Array]:
            x, first = now

            def reset(initial: Array, leaf: Array) -> Array:
                return jnp.where(first.reshape(first.shape + (1,) * (leaf.ndim - 1)), initial, leaf)

            outputs, state = cell(x, jax.tree.map(reset, init_state(first.shape[0]), state))
            return state, outputs

        def unroll(inputs: Array, first: Array, state: Tree) -> tuple[Array, Tree]:
            state, outputs = hk.scan(step, state, (inputs, first))
            return outputs, state

        return unroll

    return RecurrentCore(make, init_state)


CORES: dict[str, MakeCore] = {"lstm": lstm, "gru": gru}
"""Recurrent cores by name."""


def make_core(core: str | MakeCore | None, size: int) -> RecurrentCore | None:
    """Returns a core of so many units by its name in `CORES` or by what makes it; None for none. Raises UsageError if
    that makes no `RecurrentCore`.
    """
    if core is None:
        return None
    if isinstance(core, str):
        return CORES[core](size)
    return checks.make("core", core, RecurrentCore, size=size)


class Inputs(NamedTuple):
    """What a recurrent network is given."""

    observation: Tree  # [T, B, ...]
    action: Array  # [T, B, ...] the one before; at an episode's first timestep NO_ACTION, or 0 if continuous
    reward: Array  # [T, B] that came with the observation; 0 at an episode's first timestep
    first: Array  # [T, B] bool: begins an episode


class Memory(NamedTuple):
    """What a recurrent policy remembers."""

    core: Tree  # [B, ...]
    action: Array  # [B, ...] the last one; as in `Inputs` before an episode's first


@dataclasses.dataclass(frozen=True)
class RecurrentNetwork:
    """A network over sequences, whose core may be missing; one step is T = 1. It is given no random key.

    Attributes:
        network: `(inputs, core state) -> (output [T, B, ...], core state)`.
        core: what remembers; None for nothing: then memories are `()`.
        action: stands for the action before an episode's first timestep, of one environment.
        prepare_reward: what is made of rewards before the network is given them.
    """

    network: hk.Transformed
    core: RecurrentCore | None
    action: np.ndarray
    prepare_reward: Callable[[Array], Array]

    def init(self, key: Array, observation: Tree) -> Params:
        """Returns parameters for observations `[1, ...]` like this one."""
        inputs = Inputs(observation, self._no_action(1), jnp.zeros(1), jnp.zeros(1, jnp.bool_))
        return self.network.init(key, jax.tree.map(lambda x: x[None], inputs), self._core_state(1))

    def init_memory(self, batch: int) -> Memory | tuple[()]:
        """Returns what is remembered at an episode's start; NumPy arrays `[B, ...]`."""
        return () if self.core is None else Memory(self._core_state(batch), self._no_action(batch))

    def memory_spec(self) -> Tree:
        """Returns arrays that stand for one environment's memory."""
        return jax.tree.map(lambda leaf: leaf[0], self.init_memory(1))

    def step(self, params: Params, reward: Array, observation: Tree, memory: Tree) -> tuple[Any, Tree]:
        """Returns the output `[B, ...]` for the next timestep, and the memory after it, which still lacks the action
        that is now taken: see `remember`.

        Args:
            params: of the network.
            reward: `[B]` that came with the observation.
            observation: `[B, ...]`.
            memory: of the timesteps before; whoever acts has reset it where an episode begins.
        """
        batch = reward.shape[0]
        held = memory or Memory((), self._no_action(batch))
        inputs = Inputs(observation, held.action, self.prepare_reward(reward), jnp.zeros(batch, jnp.bool_))
        inputs = jax.tree.map(lambda x: jnp.asarray(x)[None], inputs)
        output, state = self.network.apply(params, None, inputs, held.core)
        return jax.tree.map(lambda x: x[0], output), memory and Memory(state, held.action)

    @staticmethod
    def remember(memory: Tree, action: Array) -> Tree:
        """Returns the memory with the action `[B, ...]` that was taken."""
        return memory and memory._replace(action=action)

    def inputs_of(self, batch: Sequence) -> Inputs:
        """Returns what the network was given at the timesteps of sequences `[T + 1, B, ...]`, as it acted."""
        size = batch.reward.shape[1]
        before = batch.state.action if isinstance(batch.state, Memory) else self._no_action(size)
        action = jnp.concatenate([jnp.asarray(before, batch.action.dtype)[None], batch.action])
        first = batch.first.reshape(batch.first.shape + (1,) * (action.ndim - 2))
        action = jnp.where(first, self.action, action)
        return Inputs(batch.observation, action, self.prepare_reward(batch.reward), batch.first)

    def unroll(self, params: Params, inputs: Inputs, state: Tree) -> tuple[Any, Tree]:
        """Returns the output `[T, B, ...]` over sequences, and the core's state after them.

        Args:
            params: of the network.
            inputs: see `inputs_of`.
            state: of the core before them, see `core_state_of`.
        """
        return self.network.apply(params, None, inputs, state)

    def outputs(self, params: Params, batch: Sequence) -> Any:
        """Returns the output `[T + 1, B, ...]` at all timesteps of sequences."""
        return self.unroll(params, self.inputs_of(batch), self.core_state_of(batch))[0]

    @staticmethod
    def core_state_of(batch: Sequence) -> Tree:
        """Returns the core's state `[B, ...]` at the start of sequences."""
        return batch.state.core if isinstance(batch.state, Memory) else ()

    def _core_state(self, batch: int) -> Tree:
        return () if self.core is None else self.core.init_state(batch)

    def _no_action(self, batch: int) -> np.ndarray:
        return np.broadcast_to(self.action, (batch, *self.action.shape)).copy()


def recurrent_network(
    spec: EnvironmentSpec,
    torso: Callable[[Tree], Array],
    core: RecurrentCore | None,
    head: Callable[[Array], Any],
    *,
    prepare_reward: Callable[[Array], Array] = lambda reward: reward,
) -> RecurrentNetwork:
    """Returns the network of a torso, maybe a core, and a head.

    The core is also given the last action, one-hot if it is discrete, and the last reward.

    Args:
        spec: of the environment.
        torso: `observation [B, ...] -> features [B, F]`.
        core: what remembers; None leaves it out, with the last action and reward.
        head: `features [B, H] -> output`, a nest of `[B, ...]`.
        prepare_reward: what is made of rewards before the network is given them.
    """
    num_actions = spec.actions.num_values if isinstance(spec.actions, DiscreteArray) else None

    def network(inputs: Inputs, state: Tree) -> tuple[Any, Tree]:
        x = hk.BatchApply(torso)(inputs.observation)
        if core is not None:
            action = inputs.action if num_actions is None else jax.nn.one_hot(inputs.action, num_actions)
            x = jnp.concatenate([x, action, inputs.reward[..., None]], axis=-1)
            x, state = core.make()(x, inputs.first, state)
        return hk.BatchApply(head)(x), state

    before = np.array(NO_ACTION, np.int32) if num_actions else np.zeros(spec.actions.shape, np.float32)
    return RecurrentNetwork(hk.transform(network), core, before, prepare_reward)
