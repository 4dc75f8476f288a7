"""Batches of ordinary dm_envs."""

import contextlib
from collections.abc import Sequence
from math import isfinite
from typing import Any

import dm_env
import numpy as np
import tree

from acme_ext.envs import base
from acme_ext.envs.specs import (
    action_spec,
    check_dm_env,
    check_observation,
    check_reward,
    check_values,
    float_buffers,
    row_writer,
    scalar_reward,
    single_specs,
)
from acme_ext.errors import RunError, UsageError
from acme_ext.types import FIRST, LAST, MID, Tree


class VectorEnvironment(base.StatedSpecs, base.BatchedEnvironment):
    """Steps dm_envs one after the other, and writes their timesteps to buffers that are reused in each step.

    The environments must have equal specs, of any precision. `reset` checks their observations against the specs.
    """

    def __init__(self, environments: Sequence[dm_env.Environment]):
        if not environments:
            raise ValueError("a batch needs at least one environment.")
        self.environments = tuple(environments)
        self.num_envs = len(self.environments)
        first = self.environments[0]
        for environment in self.environments:
            check_dm_env(environment)
        self._observation_spec = single_specs(first.observation_spec())
        self._action_spec, self._action_dtype = action_spec(first)
        for environment in self.environments:
            scalar_reward(environment)
            same_observation = _same(self._observation_spec, single_specs(environment.observation_spec()))
            if not same_observation or environment.action_spec() != first.action_spec():
                raise UsageError("the environments of a batch must have equal observation and action specs.")
        reward, discount, observation, flat = float_buffers(self._observation_spec, self.num_envs)
        self._squares = [(numbers.dot, numbers) for numbers in flat]  # a sum of squares is finite if all numbers are
        discount.fill(1.0)
        self._write = row_writer(observation)
        self._ended = [False] * self.num_envs
        self._restarted: set[int] = set()  # rows whose newest time step is FIRST without a reset
        self._closed = False
        self._steps = [environment.step for environment in self.environments]
        self._timestep = dm_env.TimeStep(
            step_type=np.zeros(self.num_envs, np.uint8),
            reward=reward,
            discount=discount,
            observation=observation,
        )

    def reset(self) -> dm_env.TimeStep:
        self._restarted.clear()
        for row, environment in enumerate(self.environments):
            timestep = environment.reset()
            check_observation(self.name, self._observation_spec, timestep.observation)
            self._begin(row, timestep.observation)
        check_values(self.name, self._observation_spec, self._timestep)
        return self._timestep

    def _begin(self, row: int, observation: Tree) -> None:
        try:
            self._write(row, observation)
        except (AttributeError, LookupError, TypeError, ValueError):
            check_observation(self.name, self._observation_spec, observation)
            raise
        self._timestep.step_type[row] = FIRST
        self._timestep.reward[row] = 0.0
        self._timestep.discount[row] = 1.0
        self._ended[row] = False

    def step(self, actions: Any) -> dm_env.TimeStep:
        step_type, reward, discount, _ = self._timestep
        write, ended, restarted = self._write, self._ended, self._restarted
        step_type.fill(MID)
        actions = np.asarray(actions, self._action_dtype)
        for row, (step, action) in enumerate(zip(self._steps, actions, strict=True)):
            if ended[row]:  # reset explicitly, because some environments don't restart by themselves
                self._begin(row, self.environments[row].reset().observation)
                continue
            kind, r, d, observation = step(action)
            if kind == FIRST:  # the environment has started another episode by itself
                if row in restarted:
                    raise RunError(
                        f"{self.name} begins an episode in every step(): the time step after an action is MID or LAST."
                    )
                self._begin(row, observation)
                restarted.add(row)
                continue
            if restarted:
                restarted.discard(row)
            try:
                if r is None or (d != 1.0 and not 0 <= d <= 1):
                    raise TypeError  # NumPy would convert None to nan
                reward[row], discount[row] = r, d
                write(row, observation)
            except (AttributeError, LookupError, TypeError, ValueError):
                check_reward(self.name, r, d)
                check_observation(self.name, self._observation_spec, observation)
                raise
            if kind == LAST:
                step_type[row] = LAST
                ended[row] = True
        for square, numbers in self._squares:
            if not isfinite(square(numbers)):
                check_values(self.name, self._observation_spec, self._timestep)
        return self._timestep

    def close(self) -> None:
        with contextlib.ExitStack() as stack:  # if one of them raises, the others are closed nevertheless
            for environment in () if self._closed else self.environments:
                stack.callback(environment.close)
            self._closed = True


def _same(a: Tree, b: Tree) -> bool:
    """Whether two nests of specs are equal."""
    try:
        tree.assert_same_structure(a, b)
    except (TypeError, ValueError):
        return False
    return all(x == y for x, y in zip(tree.flatten(a), tree.flatten(b), strict=True))
