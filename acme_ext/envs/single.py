"""Wrappers that give ordinary dm_envs: one converts to single precision, one unwraps a batch of one environment."""

from typing import Any

import dm_env
import numpy as np
import tree
from dm_env import specs

from acme_ext.envs.base import BatchedEnvironment, SingleEnvironment, StatedSpecs
from acme_ext.envs.specs import action_spec, scalar_reward, single_dtype, single_specs
from acme_ext.types import Tree


def single_precision(environment: dm_env.Environment) -> dm_env.Environment:
    """Returns the environment in single precision; unchanged if its specs already are."""
    stated = [environment.observation_spec(), environment.action_spec(), environment.reward_spec()]
    if any(spec.dtype != single_dtype(spec.dtype) for spec in tree.flatten([*stated, environment.discount_spec()])):
        return SinglePrecision(environment)
    return environment


class SinglePrecision(StatedSpecs, SingleEnvironment):
    """Wraps an environment to have single precision; it receives actions with the dtype of its own spec."""

    def __init__(self, environment: dm_env.Environment):
        self.environment = environment
        self._observation_spec = single_specs(environment.observation_spec())
        self._action_spec, self._action_dtype = action_spec(environment)
        scalar_reward(environment)

    def _observe(self, observation: Any) -> Tree:
        """Returns an observation of the environment in single precision."""
        stated = self._observation_spec
        return tree.map_structure_up_to(stated, lambda spec, x: np.asarray(x, spec.dtype), stated, observation)

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        observation = self._observe(timestep.observation)
        if timestep.first():
            return dm_env.restart(observation)
        return dm_env.TimeStep(
            timestep.step_type, np.float32(timestep.reward), np.float32(timestep.discount), observation
        )

    def reset(self) -> dm_env.TimeStep:
        return self._convert(self.environment.reset())

    def step(self, action: Any) -> dm_env.TimeStep:
        return self._convert(self.environment.step(np.asarray(action, self._action_dtype)))

    def close(self) -> None:
        self.environment.close()


class Unbatched(SingleEnvironment):
    """Wraps a batch of one environment as an ordinary dm_env; its arrays are copies."""

    def __init__(self, batch: BatchedEnvironment):
        if batch.num_envs != 1:
            raise ValueError(f"a batch of {batch.num_envs} environments can't be made one environment.")
        self._batch = batch
        self._began = False

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        observation = tree.map_structure(lambda value: value[0].copy(), timestep.observation)
        kind = dm_env.StepType(int(timestep.step_type[0]))
        if kind is dm_env.StepType.FIRST:
            return dm_env.restart(observation)
        return dm_env.TimeStep(kind, timestep.reward[0], timestep.discount[0], observation)

    def reset(self) -> dm_env.TimeStep:
        self._began = True
        return self._convert(self._batch.reset())

    def step(self, action: Any) -> dm_env.TimeStep:
        if not self._began:
            return self.reset()
        return self._convert(self._batch.step(np.asarray(action)[None]))

    def observation_spec(self) -> Tree:
        return self._batch.observation_spec()

    def action_spec(self) -> specs.Array:
        return self._batch.action_spec()

    def reward_spec(self) -> specs.Array:
        return self._batch.reward_spec()

    def discount_spec(self) -> specs.BoundedArray:
        return self._batch.discount_spec()

    def close(self) -> None:
        self._batch.close()
