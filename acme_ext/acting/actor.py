"""The actor, which all agents share."""

from typing import Any, Protocol

import dm_env
import numpy as np
import tree

from acme_ext import interfaces
from acme_ext.acting.inference import Inference, InferenceCore
from acme_ext.types import FIRST, Tree


class Writer(Protocol):
    """An object that receives an actor's timesteps and actions, such as a replay's writer.

    If a writer's attribute `keeps_state` is true, `add` also receives the policy's recurrent state from before the
    action, as `state`. At an episode's first timestep this is the initial state.
    """

    def add_first(self, timestep: dm_env.TimeStep) -> None: ...
    def add(self, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = ()) -> None: ...


class Actor(interfaces.Actor):
    """Acts in B environments in parallel, with one compiled call per step, and passes the experience to a writer.

    With `num_envs=None`, it acts in one environment and takes unbatched timesteps. It is then an ordinary
    `acme.core.Actor`, which `acme.EnvironmentLoop` can use. With a number, all arguments have a leading axis of that
    size, and follow the rule of `envs.BatchedEnvironment`: after LAST, a row's next timestep is FIRST.

    Args:
        inference: computes the actions: a `LocalInference`, or the client of an inference server.
        num_envs: B, or None for one unbatched environment.
        writer: receives the experience; None to store none.
    """

    def __init__(self, inference: Inference, *, num_envs: int | None = None, writer: Writer | None = None):
        self._inference, self._writer = inference, writer
        self._batched = num_envs is not None
        self._timestep: dm_env.TimeStep | None = None  # the newest timestep, batched
        self._extras: Tree = ()
        self._state_before: Tree = ()
        self._keeps_state = getattr(writer, "keeps_state", False)
        self.environment_steps = 0
        """Steps that the run has taken: this actor's own steps, unless a caller sets the total of all actors."""

    def select_action(self, observation: Tree) -> Any:
        if self._timestep is None:
            raise RuntimeError("an actor has to observe the first timestep before it acts")
        if not self._batched:
            observation = tree.map_structure(lambda x: np.asarray(x)[None], observation)
        timestep = self._timestep._replace(observation=observation)
        action, self._extras, self._state_before = self._inference.step(self.environment_steps, timestep)
        if self._writer is not None and self._inference.restarted:
            getattr(self._writer, "add_anew", self._writer.add_first)(timestep)
        return action if self._batched else action[0]

    def begin(self) -> None:
        """Requests the next actions in advance, if an inference server computes them; otherwise does nothing."""
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
        """The object that applies the policy and holds its memory; None if an inference server does that."""
        return getattr(self._inference, "core", None)

    def save(self) -> dict[str, Any]:
        """Returns the state that a resumed actor needs: the position in its random stream, the run's steps for
        schedules, and the policy's memory, if it has one.
        """
        memory = self.core.save_memory() if self.core else None
        saved = {"carry": memory} if memory else {}
        return {"ticks": self._inference.save(), "steps": self.environment_steps, **saved}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the state that `save` returned."""
        self._inference.restore(state["ticks"])
        self.environment_steps = state["steps"]
        if self.core:
            self.core.restore_memory(state.get("carry"))

    def _batch(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if self._batched:
            return timestep
        # In dm_env, a FIRST timestep has no reward and no discount.
        return dm_env.TimeStep(
            step_type=np.full(1, int(timestep.step_type), np.uint8),
            reward=np.full(1, timestep.reward or 0.0, np.float32),
            discount=np.full(1, 1.0 if timestep.discount is None else timestep.discount, np.float32),
            observation=tree.map_structure(lambda x: np.asarray(x)[None], timestep.observation),
        )
