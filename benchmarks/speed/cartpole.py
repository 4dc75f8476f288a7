"""CartPole's specs, and random experience with the same shapes, which is made before a measurement begins."""

import dm_env
import numpy as np
from dm_env import specs

from acme_ext.interfaces import EnvironmentSpec

LENGTH = 22  # steps per episode, about as many as with a random policy

SPEC = EnvironmentSpec(
    observations=specs.BoundedArray((4,), np.float32, -np.inf, np.inf, "observation"),
    actions=specs.DiscreteArray(2, np.int32, "action"),
    rewards=specs.Array((), np.float32, "reward"),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, "discount"),
)


def timesteps(num_envs: int, shape: tuple[int, ...] = (4,)) -> list[dm_env.TimeStep]:
    """Returns timesteps `[B, ...]` that can be repeated in a cycle.

    They contain an episode of each of B environments, with staggered resets. Observations `[B, *shape]` are random.
    """
    rng = np.random.default_rng(0)
    period = LENGTH + 1  # the step after an episode's end resets the environment
    offset = np.arange(num_envs) * 3
    made = []
    for tick in range(period):
        place = (tick + offset) % period
        step_type = np.where(place == 0, 0, np.where(place == LENGTH, 2, 1)).astype(np.uint8)
        made.append(
            dm_env.TimeStep(
                step_type=step_type,
                reward=(step_type != 0).astype(np.float32),
                discount=(step_type != 2).astype(np.float32),
                observation=rng.standard_normal((num_envs, *shape)).astype(np.float32),
            )
        )
    return made


def episode() -> list[dm_env.TimeStep]:
    """Returns an episode of a single environment, as unbatched dm_env timesteps."""
    observations = np.random.default_rng(0).standard_normal((LENGTH + 1, 4)).astype(np.float32)
    one = np.float32(1.0)
    middle = [dm_env.TimeStep(dm_env.StepType.MID, one, one, o) for o in observations[1:-1]]
    last = dm_env.TimeStep(dm_env.StepType.LAST, one, np.float32(0.0), observations[-1])
    return [dm_env.restart(observations[0]), *middle, last]
