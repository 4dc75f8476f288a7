"""Bootstrapped DQN's network: several heads with separate parameters."""

import haiku as hk
import jax
import optax

from acme_ext import specs
from acme_ext.agents.bdqn.config import BDQNConfig
from acme_ext.networks import heads, layers, torsos
from acme_ext.types import Array, EnvironmentSpec, Params, Tree


def make_network(spec: EnvironmentSpec, config: BDQNConfig, torso: str | torsos.Torso | None = None) -> hk.Transformed:
    """Returns the network `apply(params, key, observation [B, ...]) -> q [B, K, A]`, which ignores the key.

    All heads share one torso for images, and a torso passed as `torso` for any observations. The torso's gradient is
    the mean of the heads' gradients (Osband et al. 2016, appendix D.3). Otherwise observations are flattened, and the
    heads share no parameters. The default torso for images is followed by a layer of `image_features` in each head;
    otherwise each head has layers of `hidden_sizes`.
    """
    num_actions = specs.num_actions(spec, "Q-learning")

    def is_picture(observation: Tree) -> bool:
        return torso is None and torsos.is_image(observation)

    def shared(observation: Tree) -> Array:
        chosen = None if is_picture(observation) else torso or "flat"
        return torsos.features(chosen, observation)

    def own(x: Array, sizes: tuple[int, ...]) -> Array:
        if not config.dueling:
            return heads.LinearQHead(num_actions)(layers.MLP(sizes)(x))
        x = layers.MLP(sizes[:-1])(x)
        return heads.DuelingQHead(num_actions, sizes[-1] if sizes else x.shape[-1])(x)

    torso_network, head = hk.transform(shared), hk.transform(own)

    def sizes_for(observation: Tree) -> tuple[int, ...]:
        return (config.image_features,) if is_picture(observation) else config.hidden_sizes

    def init(key: Array, observation: Tree) -> Params:
        torso_key, heads_key = jax.random.split(key)
        params = torso_network.init(torso_key, observation)
        x, sizes = torso_network.apply(params, None, observation), sizes_for(observation)
        keys = jax.random.split(heads_key, config.num_heads)
        return {"torso": params, "heads": jax.vmap(lambda key: head.init(key, x, sizes))(keys)}

    def apply(params: Params, key: Array | None, observation: Tree) -> Array:
        del key
        x, sizes = torso_network.apply(params["torso"], None, observation), sizes_for(observation)
        if params["torso"]:
            x = optax.scale_gradient(x, 1 / config.num_heads)
        return jax.vmap(lambda own: head.apply(own, None, x, sizes), out_axes=1)(params["heads"])

    return hk.Transformed(init, apply)
