"""Networks for planning with a learned model (Schrittwieser et al. 2020): representation h, dynamics g, prediction f.

s_0 = h(o),   (r_k, s_k) = g(s_{k-1}, a_k),   (p_k, v_k) = f(s_k)

States are scaled to [0, 1] after h and g (appendix G). Values and rewards are logits of a `Support`. The last layers of
all heads are initialized to zero, so that at first all actions are equally likely and all values and rewards are 0 (Ye
et al. 2021).
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.errors import UsageError
from acme_ext.networks import layers, torsos
from acme_ext.networks.convolution import Conv2D
from acme_ext.ops import masking
from acme_ext.specs import PICTURE_SIDE
from acme_ext.types import Array, Params, Tree

Kind = Literal["mlp", "grid", "residual"]


class Prediction(NamedTuple):
    """The prediction f for a state."""

    logits: Array  # [B, A] logits of the policy
    value: Array  # [B, N] logits of the value on the support


class Recalling(NamedTuple):
    """The state of a model that predicts value prefixes instead of rewards (Ye et al. 2021, section 4.2).

    The value prefix is the sum of the rewards since the memory was last reset.
    """

    hidden: Array  # [B, ...] s
    memory: hk.LSTMState  # [B, H] memory of the steps since the reset; zeros after a reset


class ModelNetwork(NamedTuple):
    """The networks of a learned model, which share one nest of parameters. A state is `[B, ...]`, or a `Recalling`."""

    init: Callable[[Array, Tree], Params]
    """`(key, observation [1, ...]) -> params`."""
    represent: Callable[[Params, Tree], Tree]
    """h: `(params, observation [B, ...]) -> state`."""
    dynamics: Callable[[Params, Tree, Array], tuple[Array, Tree]]
    """g: `(params, state, action [B]) -> (reward logits [B, N], state)`; for a `Recalling`, the logits are of the value
    prefix."""
    predict: Callable[[Params, Tree], Prediction]
    """f: `(params, state) -> Prediction`; for a `Recalling`, it uses only `hidden`."""
    project: Callable[[Params, Tree, bool], Array]
    """`(params, state, whether to predict another projection) -> [B, F]`, for the consistency loss of Ye et
    al. 2021, section 4.1."""


def kind_of(observation: Tree) -> Kind:
    """Returns the kind of networks for an observation `[B, ...]`.

    `residual` for images of 32 pixels or more, which are downsampled; `grid` for smaller grids with channels; `mlp` for
    all others.
    """
    if not torsos.is_image(observation):
        return "mlp"
    shape = masking.visible(observation).shape
    return "residual" if min(shape[1:3]) >= PICTURE_SIDE else "grid"


def model_network(
    num_actions: int,
    outputs: int,
    *,
    kind: Kind | None,
    torso: str | torsos.Torso | None,
    hidden_sizes: Sequence[int],
    state_size: int,
    channels: int,
    blocks: int,
    projection_size: int = 0,
    prefix_size: int = 0,
    learned: bool = True,
) -> ModelNetwork:
    """Returns the networks.

    Args:
        num_actions: A.
        outputs: N, the number of atoms in the support of values and rewards.
        kind: the kind of networks. None: `mlp` if there is a torso; otherwise it depends on the observation, see
            `kind_of`.
        torso: the torso of the representation, whose kind must be `mlp`; see `torsos.features`.
        hidden_sizes: hidden units of the MLPs and heads.
        state_size: units of the state, for `mlp`.
        channels: channels of the state, for the other kinds.
        blocks: residual blocks of h and of g, for the other kinds.
        projection_size: units of the projection for the consistency loss; 0 for no projection.
        prefix_size: units of the memory of a model that predicts value prefixes; 0 to predict rewards.
        learned: whether to learn a model. If not, states are not scaled, and there is no dynamics network.

    Raises:
        UsageError: there is a torso, and the kind is not `mlp`.
    """
    if torso is not None and kind not in (None, "mlp"):
        raise UsageError(f"network_kind is {kind!r}: with a torso it must be mlp, or none.")
    limit: Callable[[Array], Array] = scaled if learned else jax.nn.relu

    def chosen(observation: Tree) -> Kind:
        found = kind or ("mlp" if torso is not None else kind_of(observation))
        if found != "mlp" and getattr(seen := masking.visible(observation), "ndim", 0) != 4:
            shapes = jax.tree.map(lambda leaf: leaf.shape[1:], seen)
            raise UsageError(f"network_kind is {found!r}: it needs observations [H, W, C], and these are {shapes}.")
        return found

    def make() -> Any:
        def represent(observation: Tree) -> Tree:
            hidden = encode(observation)
            if not prefix_size:
                return hidden
            return Recalling(hidden, hk.LSTMState(*jnp.zeros((2, hidden.shape[0], prefix_size))))

        def encode(observation: Tree) -> Array:
            if chosen(observation) == "mlp":
                x = torsos.dense_features(torso, observation, hidden_sizes, hidden_sizes[-1])
                return limit(layers.Linear(state_size)(x))
            x = masking.visible(observation)
            x = layers.scaled_pixels(x)
            if chosen(observation) == "residual":
                x = _shrunk(x, channels)
            x = jax.nn.relu(_norm(_conv(x, channels)))
            return limit(_tower(x, blocks))

        def dynamics(state: Tree, action: Array) -> tuple[Array, Tree]:
            after = stepped(hidden_of(state), action)
            if not prefix_size:
                return head(after, outputs), after
            recalled, memory = hk.LSTM(prefix_size)(jnp.asarray(flat(after)), state.memory)
            return head(jax.nn.relu(_norm(recalled)), outputs), Recalling(after, memory)

        def stepped(state: Array, action: Array) -> Array:
            chosen = jax.nn.one_hot(action, num_actions)
            if state.ndim == 2:
                x = layers.MLP(hidden_sizes)(jnp.concatenate([state, chosen], axis=-1))
                return scaled(state + layers.Linear(state.shape[-1])(x))
            planes = jnp.broadcast_to(chosen[:, None, None], (*state.shape[:3], num_actions))
            x = _norm(_conv(jnp.concatenate([state, planes], axis=-1), state.shape[-1]))
            return scaled(_tower(jax.nn.relu(x + state), blocks))

        def predict(state: Tree) -> Prediction:
            hidden = hidden_of(state)
            return Prediction(head(hidden, num_actions), head(hidden, outputs))

        def project(state: Tree, again: bool) -> Array:
            x = hidden_of(state)
            x = x.reshape(x.shape[0], -1)
            x = layers.Linear(projection_size)(jax.nn.relu(_norm(layers.Linear(projection_size)(x))))
            return (
                layers.Linear(projection_size)(jax.nn.relu(_norm(layers.Linear(projection_size // 2)(x))))
                if again
                else x
            )

        def hidden_of(state: Tree) -> Array:
            return state.hidden if prefix_size else state

        def flat(state: Array) -> Array:
            if state.ndim == 2:
                return state
            return hk.Flatten()(jax.nn.relu(_norm(hk.Linear(min(16, channels))(state))))

        def head(state: Array, size: int) -> Array:
            x = layers.MLP(hidden_sizes)(flat(state))
            return hk.Linear(size, w_init=jnp.zeros, b_init=jnp.zeros)(x)

        # Each part has its own modules, which are the same in every call.
        parts = tuple(
            hk.to_module(part)(name)
            for part, name in (
                (represent, "representation"),
                (dynamics, "dynamics"),
                (predict, "prediction"),
                (project, "projection"),
            )
        )

        def init(observation: Tree) -> None:
            state = parts[0](observation)
            if learned:
                _, state = parts[1](state, jnp.zeros(jax.tree.leaves(state)[0].shape[0], jnp.int32))
            parts[2](state)
            if projection_size:
                parts[3](state, True)

        return init, parts

    made = hk.multi_transform(make)
    represent, dynamics, predict, project = made.apply
    return ModelNetwork(
        init=made.init,
        represent=lambda params, observation: represent(params, None, observation),
        dynamics=lambda params, state, action: dynamics(params, None, state, action),
        predict=lambda params, state: predict(params, None, state),
        project=lambda params, state, again: project(params, None, state, again),
    )


def scaled(state: Array) -> Array:
    """Returns states `[B, ...]`, each scaled to [0, 1] by its minimum and maximum.

    See Schrittwieser et al. 2020, appendix G.
    """
    axes = tuple(range(1, state.ndim))
    low, high = (f(state, axis=axes, keepdims=True) for f in (jnp.min, jnp.max))
    return (state - low) / jnp.maximum(high - low, 1e-5)


def _conv(x: Array, channels: int, stride: int = 1) -> jax.Array:
    """A 3x3 convolution with zero padding."""
    return Conv2D(channels, 3, stride, with_bias=False)(x)


def _norm(x: Array) -> jax.Array:
    """Layer normalisation; unlike batch normalisation, it needs no running statistics."""
    return hk.LayerNorm(axis=tuple(range(1, x.ndim)), param_axis=-1, create_scale=True, create_offset=True)(x)


def _block(x: Array) -> jax.Array:
    inner = jax.nn.relu(_norm(_conv(x, x.shape[-1])))
    return jax.nn.relu(x + _norm(_conv(inner, x.shape[-1])))


def _tower(x: Array, blocks: int) -> Array:
    for _ in range(blocks):
        x = _block(x)
    return x


def _shrunk(x: Array, channels: int) -> Array:
    """Downsamples an image to 1/16 of its width and height (Schrittwieser et al. 2020, appendix F)."""
    x = _block(jax.nn.relu(_norm(_conv(x, max(1, channels // 2), 2))))
    x = _block(jax.nn.relu(_norm(_conv(x, channels, 2))))
    x = hk.avg_pool(x, (3, 3, 1), (2, 2, 1), "SAME")
    return hk.avg_pool(_block(x), (3, 3, 1), (2, 2, 1), "SAME")
