"""Reading environment specs."""

import dm_env.specs
import numpy as np
import tree

from acme_ext.errors import UsageError
from acme_ext.types import EnvironmentSpec, Tree


def zeros(spec: Tree, batch: int) -> Tree:
    """Returns a nest of zeros `[batch, ...]` of the specs' shapes and dtypes."""
    return tree.map_structure(lambda leaf: np.zeros((batch, *leaf.shape), leaf.dtype), spec)


def num_actions(spec: EnvironmentSpec, agent: str) -> int:
    """Returns the number of discrete actions; raises UsageError, naming the agent, if the actions are not discrete."""
    actions = spec.actions
    if not isinstance(actions, dm_env.specs.DiscreteArray):
        raise UsageError(
            f"{agent} needs an environment with one discrete action; this one's actions are "
            f"{type(actions).__name__} of shape {getattr(actions, 'shape', '?')}."
        )
    return int(actions.num_values)
