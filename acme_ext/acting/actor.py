"""The one acting class."""

from typing import Any, Protocol

import dm_env
import numpy as np
import tree

from acme_ext import interfaces
from acme_ext.acting.inference import FIRST, Inference, InferenceCore
from acme_ext.types import Tree


class Writer(Protocol):
    """What an actor tells of its timesteps and actions; a replay's writer is one.

    A writer with an attribute `keeps_state` that is true is also given, as `state`, the recurrent state that the policy
    had before the action: the initial one at an episode's first timestep.
    """

    def add_first(self, timestep: dm_env.TimeStep) -> None: ...
    def add(self, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = ()) -> None: ...


class Actor(interfaces.Actor):
    """Acts in B environments at once by one compiled call for a step of all of them, and writes what happens to replay.

    With `num_envs=None` it acts in one environment and takes unbatched timesteps: then it is an `acme.core.Actor` like
    any other and `acme.EnvironmentLoop` can drive it. With a number, every argument has a leading axis of that many
    environments and follows the rule of `envs.BatchedEnvironment`: a row that was LAST comes back FIRST.

    Args:
        inference: gives the actions: `LocalInference`, or a server's.
        num_envs: B, or None for one unbatched environment.
        writer: takes the experience, or None to keep none.
    """

    def __init__(self, inference: Inference, *, num_envs: int | None = None, writer: Writer | None = None):
        self._inference, self._writer = inference, writer
        self._batched = num_envs is not None
        self._timestep: dm_env.TimeStep | None = None  # the newest, batched
        self._extras: Tree = ()
        self._state_before: Tree = ()
        self._keeps_state = getattr(writer, "keeps_state", False)
        self.environment_steps = 0
        """Steps that the run has taken: this actor's own, unless whoever knows of all actors sets it now and then."""

    def select_action(self, observation: Tree) -> Any:
        if self._timestep is None:
            raise RuntimeError("an actor has to observe the first timestep before it acts")
        if not self._batched:
            observation = tree.map_structure(lambda x: np.asarray(x)[None], observation)
        timestep = self._timestep._replace(observation=observation)
        action, self._extras, self._state_before = self._inference.step(self.environment_steps, timestep)
        return action if self._batched else action[0]

    def begin(self) -> None:
        """Has the next actions made, where that can be done elsewhere, while this thread does something else."""
        if self._timestep is None:
            raise RuntimeError("an actor has to observe the first timestep before it acts")
        self._inference.begin(self.environment_steps, self._timestep)

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        timestep = self._timestep = self._batch(timestep)
        if self._writer is not None:
            self._writer.add_first(timestep)

    def observe(self, action: Any, next_timestep: dm_env.TimeStep) -> None:
        timestep = self._timestep = self._batch(next_timestep)
        self.environment_steps += int(np.count_nonzero(timestep.step_type != FIRST))
        if self._writer is not None:
            action = action if self._batched else np.asarray(action)[None]
            kept = {"state": self._state_before} if self._keeps_state else {}
            self._writer.add(action, timestep, self._extras, **kept)

    def update(self, wait: bool = False) -> None:
        self._inference.update(wait)

    @property
    def core(self) -> InferenceCore | None:
        """What applies the policy, where that is done here; it keeps the policy's carry."""
        return getattr(self._inference, "core", None)

    def save(self) -> dict[str, Any]:
        """Returns what a resumed actor needs to go on with fresh randomness, the schedule where it was, and what its
        policy has learned as it acted.
        """
        carry = self.core.save_carry() if self.core else None
        return {"ticks": self._inference.save(), "steps": self.environment_steps, **({"carry": carry} if carry else {})}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes up what `save` returned."""
        self._inference.restore(state["ticks"])
        self.environment_steps = state["steps"]
        if self.core:
            self.core.restore_carry(state.get("carry"))

    def _batch(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if self._batched:
            return timestep
        # dm_env leaves reward and discount of a FIRST timestep out.
        return dm_env.TimeStep(
            step_type=np.full(1, int(timestep.step_type), np.uint8),
            reward=np.full(1, timestep.reward or 0.0, np.float32),
            discount=np.full(1, 1.0 if timestep.discount is None else timestep.discount, np.float32),
            observation=tree.map_structure(lambda x: np.asarray(x)[None], timestep.observation),
        )
