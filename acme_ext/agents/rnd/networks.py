"""RND's policy and value network."""

from acme_ext.agents.ppo import networks
from acme_ext.agents.rnd.config import RNDConfig
from acme_ext.networks import recurrent, torsos
from acme_ext.types import EnvironmentSpec

NUM_VALUES = 2  # one for the reward, and one for the bonus


def make_network(
    spec: EnvironmentSpec,
    config: RNDConfig,
    torso: str | torsos.Torso | None = None,
    core: str | recurrent.MakeCore | None = None,
) -> recurrent.RecurrentNetwork:
    """Returns PPO's network with two values `[T, B, 2]`, for the reward and for the bonus."""
    return networks.make_network(spec, config, torso, core, num_values=NUM_VALUES)
