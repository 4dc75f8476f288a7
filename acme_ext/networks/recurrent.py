"""Recurrent networks over time-major sequences, which all recurrent agents use.

At every timestep, the inputs of a recurrent network are the observation, the previous action, the reward that came with
the observation, and whether an episode begins. Its memory is stored with the sequences in replay, so that learning
starts from the same state as acting.
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

from acme_ext.config.fields import make_checked
from acme_ext.networks import layers
from acme_ext.types import Array, EnvironmentSpec, Params, Sequence, Tree
from acme_ext.utils import trees

NO_ACTION = -1  # the previous action at an episode's first timestep, for discrete actions


class LSTMState(NamedTuple):
    """The state of an LSTM."""

    hidden: Array  # [B, H] the last output
    cell: Array  # [B, H]


class LSTM(hk.Module):
    """An LSTM (Hochreiter and Schmidhuber 1997) with the forget gate of Gers et al. 2000, whose bias starts near 1.

    i, f, g, o = W x_t + U h_{t-1} + b;  c_t = sigma(f + 1) c_{t-1} + sigma(i) tanh(g);  h_t = sigma(o) tanh(c_t)

    The inputs of all steps are multiplied by W in one product, before the loop over time.

    Args:
        size: H.
    """

    def __init__(self, size: int, name: str | None = None):
        super().__init__(name)
        self._size = size

    def __call__(self, inputs: Array, first: Array, state: LSTMState) -> tuple[Array, LSTMState]:
        """Applies the LSTM to a sequence; see `RecurrentCore.make`."""
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
    """The recurrent part of a network."""

    make: Callable[[], Callable[[Array, Array, Tree], tuple[Array, Tree]]]
    """Makes a function `(inputs [T, B, F], first [T, B], state [B, ...]) -> (outputs [T, B, H], state after the last
    step)`, inside a Haiku transform. Where `first` is true, an episode begins, and the state is reset before that
    step."""

    init_state: Callable[[int], Tree]
    """`batch -> state [B, ...]` at an episode's start, as NumPy arrays. They must be NumPy's because processes that
    will be forked, where JAX must not start, use them to describe a replay."""


MakeCore = Callable[[int], RecurrentCore]
"""`size -> core`: makes a core with `size` units."""


def lstm(size: int) -> RecurrentCore:
    """Returns an LSTM with `size` units."""

    def init_state(batch: int) -> LSTMState:
        return LSTMState(np.zeros((batch, size), np.float32), np.zeros((batch, size), np.float32))

    return RecurrentCore(lambda: LSTM(size), init_state)


def gru(size: int) -> RecurrentCore:
    """Returns a GRU (Cho et al. 2014) with `size` units."""
    return haiku_core(lambda: hk.GRU(size), lambda batch: np.zeros((batch, size), np.float32))


def haiku_core(make_cell: Callable[[], hk.RNNCore], init_state: Callable[[int], Tree]) -> RecurrentCore:
    """Returns a core that steps a Haiku cell through time and resets its state where an episode begins.

    Args:
        make_cell: makes the cell, inside a Haiku transform.
        init_state: see `RecurrentCore`.
    """

    def make() -> Callable[[Array, Array, Tree], tuple[Array, Tree]]:
        cell = make_cell()

        def step(state: Tree, now: tuple[Array, Array]) -> tuple[Tree, Array]:
            x, first = now

            outputs, state = cell(x, trees.select(first, init_state(first.shape[0]), state))
            return state, outputs

        def unroll(inputs: Array, first: Array, state: Tree) -> tuple[Array, Tree]:
            state, outputs = hk.scan(step, state, (inputs, first))
            return outputs, state

        return unroll

    return RecurrentCore(make, init_state)


CORES: dict[str, MakeCore] = {"lstm": lstm, "gru": gru}
"""Recurrent cores by name."""


def make_core(core: str | MakeCore | None, size: int) -> RecurrentCore | None:
    """Returns a core with `size` units, or None if `core` is None.

    Args:
        core: a name in `CORES`, or a function that makes the core.
        size: number of units.

    Raises:
        UsageError: the function doesn't return a `RecurrentCore`.
    """
    if core is None:
        return None
    if isinstance(core, str):
        return CORES[core](size)
    return make_checked("core", core, RecurrentCore, size=size)


class Inputs(NamedTuple):
    """The inputs of a recurrent network."""

    observation: Tree  # [T, B, ...]
    action: Array  # [T, B, ...] the previous action; at an episode's first timestep NO_ACTION, or 0 if continuous
    reward: Array  # [T, B] the reward that came with the observation; 0 at an episode's first timestep
    first: Array  # [T, B] bool: begins an episode


class Memory(NamedTuple):
    """The memory of a recurrent policy."""

    core: Tree  # [B, ...] the core's state
    action: Array  # [B, ...] the previous action; as in `Inputs` at an episode's first timestep


@dataclasses.dataclass(frozen=True)
class RecurrentNetwork:
    """A network over sequences, with or without a recurrent core; one step is T = 1. It uses no random key.

    Attributes:
        network: `(inputs, core state) -> (output [T, B, ...], core state)`.
        core: the recurrent core; None for a network without memory, whose memories are `()`.
        action: the previous action at an episode's first timestep, for one environment.
        prepare_reward: transforms rewards before they are inputs of the network.
    """

    network: hk.Transformed
    core: RecurrentCore | None
    action: np.ndarray
    prepare_reward: Callable[[Array], Array]

    def init(self, key: Array, observation: Tree) -> Params:
        """Returns initial parameters for observations `[1, ...]` like this one."""
        inputs = Inputs(observation, self._no_action(1), jnp.zeros(1), jnp.zeros(1, jnp.bool_))
        return self.network.init(key, jax.tree.map(lambda x: x[None], inputs), self._core_state(1))

    def init_memory(self, batch: int) -> Memory | tuple[()]:
        """Returns the memory at an episode's start, as NumPy arrays `[B, ...]`."""
        return () if self.core is None else Memory(self._core_state(batch), self._no_action(batch))

    def step(self, params: Params, reward: Array, observation: Tree, memory: Tree) -> tuple[Any, Tree]:
        """Returns the output `[B, ...]` for the next timestep, and the memory after it.

        The action taken at this timestep must then be added to the memory with `remember`.

        Args:
            params: the network's parameters.
            reward: `[B]` the reward that came with the observation.
            observation: `[B, ...]`.
            memory: the memory of earlier timesteps; the caller must have reset it where an episode begins.
        """
        batch = reward.shape[0]
        held = memory or Memory((), self._no_action(batch))
        inputs = Inputs(observation, held.action, self.prepare_reward(reward), jnp.zeros(batch, jnp.bool_))
        inputs = jax.tree.map(lambda x: jnp.asarray(x)[None], inputs)
        output, state = self.network.apply(params, None, inputs, held.core)
        return jax.tree.map(lambda x: x[0], output), memory and Memory(state, held.action)

    @staticmethod
    def remember(memory: Tree, action: Array) -> Tree:
        """Returns the memory with the action `[B, ...]` taken at the latest timestep."""
        return memory and memory._replace(action=action)

    def inputs_of(self, batch: Sequence) -> Inputs:
        """Returns the network's inputs at the timesteps of sequences `[T + 1, B, ...]`, the same as when acting."""
        size = batch.reward.shape[1]
        before = batch.state.action if isinstance(batch.state, Memory) else self._no_action(size)
        action = jnp.concatenate([jnp.asarray(before, batch.action.dtype)[None], batch.action])
        first = batch.first.reshape(batch.first.shape + (1,) * (action.ndim - 2))
        action = jnp.where(first, self.action, action)
        return Inputs(batch.observation, action, self.prepare_reward(batch.reward), batch.first)

    def unroll(self, params: Params, inputs: Inputs, state: Tree) -> tuple[Any, Tree]:
        """Returns the output `[T, B, ...]` over sequences, and the core's state after them.

        Args:
            params: the network's parameters.
            inputs: see `inputs_of`.
            state: the core's state before them, see `core_state_of`.
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
    """Returns a network with a torso, optionally a core, and a head.

    The core's inputs are the features, the previous action (one-hot if it is discrete) and the reward.

    Args:
        spec: the environment's spec.
        torso: `observation [B, ...] -> features [B, F]`.
        core: the recurrent core. None: the network has no memory, and doesn't use the previous action and the reward.
        head: `features [B, H] -> output`, a nest of `[B, ...]`.
        prepare_reward: transforms rewards before they are inputs of the network.
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
