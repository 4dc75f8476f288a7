"""DQN without a toolkit: a loop over environments, ring buffers of NumPy arrays as replay, and compiled functions.

It has the algorithm of `acme_ext` (policy and learner core), but not the parts that run it, so it shows the cost of
Reverb and of these parts. It can't save, log, resume or distribute anything.
"""

from typing import Any

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext import envs
from acme_ext.acting.policy import Context
from acme_ext.acting.variables import POLICY
from acme_ext.builders.dqn import DQN
from acme_ext.types import Sample, Transition
from acme_ext.utils import compiling

_LAST = int(dm_env.StepType.LAST)


class PlainLoop:
    """A plain loop that acts and learns in turn.

    Args:
        builder: makes the algorithm. The loop uses the replay's batch size, samples per insert, minimum and maximum
            size, but not its kind and its rate limiter's tolerance.
        environment: the environment's name.
        num_envs: number of environments that are stepped together.
    """

    def __init__(self, builder: DQN, environment: str, num_envs: int):
        self._config = config = builder.config
        self._environment = envs.make(environment, num_envs=num_envs)
        spec = envs.make_spec(self._environment)
        agent = builder.make_agent(spec)
        policy, core = agent.policy, agent.core
        size = config.replay.max_size
        observations = np.zeros((size, *spec.observations.shape), spec.observations.dtype)
        self._ring = Transition(
            observations,
            np.zeros(size, np.int32),
            np.zeros(size, np.float32),
            np.zeros(size, np.float32),
            observations.copy(),
        )
        self._rng = np.random.default_rng(0)
        self._core, self._state = core, jax.jit(core.init)(jax.random.key(0))
        self._keys = jax.random.split(jax.random.key(1), num_envs)
        self._rank = np.linspace(0, 1, num_envs, dtype=np.float32)
        self._reward = np.zeros(num_envs, np.float32)  # not used by DQN's policies
        self._ticks = self._inserted = 0
        self._timestep = self._environment.reset()

        def act(params: Any, keys: Any, ticks: Any, steps: Any, observation: Any) -> Any:
            keys = jax.vmap(jax.random.fold_in, (0, None))(keys, ticks)
            return policy.apply(params, Context(keys, steps, self._rank, self._reward), observation, ())[0]

        def update(state: Any, data: Transition) -> Any:
            def step(state: Any, batch: Transition) -> tuple[Any, None]:
                return core.step(state, Sample(batch, jnp.ones(config.batch_size, jnp.float32)))[0], None

            return jax.lax.scan(step, state, data)[0]

        self._act, self._update = compiling.jit(act), compiling.jit(update)
        self.learner_steps = 0
        """SGD steps taken."""

    @property
    def steps(self) -> int:
        """Environment steps taken; each one makes a transition."""
        return self._inserted

    def step(self) -> None:
        """Steps all environments once, then makes the SGD steps that are due."""
        before = self._timestep
        params = self._core.variables(self._state)[POLICY]
        action = np.asarray(
            self._act(params, self._keys, np.int32(self._ticks), np.int32(self._inserted), before.observation)
        )
        observation = before.observation.copy()  # may be a buffer that the environment reuses
        acted = before.step_type != _LAST
        self._timestep = after = self._environment.step(action)
        self._insert(acted, observation, action, after)
        self._ticks += 1
        self._learn()

    def close(self) -> None:
        """Waits for the learner's last steps, and closes the environments."""
        jax.block_until_ready(self._state)
        self._environment.close()

    def _insert(self, acted: np.ndarray, observation: np.ndarray, action: np.ndarray, after: dm_env.TimeStep) -> None:
        count = int(np.count_nonzero(acted))
        places = (self._inserted + np.arange(count)) % self._config.replay.max_size
        ring = self._ring
        ring.observation[places] = observation[acted]
        ring.action[places] = action[acted]
        ring.reward[places] = after.reward[acted]
        ring.discount[places] = self._config.discount * after.discount[acted]
        ring.next_observation[places] = after.observation[acted]
        self._inserted += count

    def _learn(self) -> None:
        c = self._config
        calls_of = c.sgd_steps_per_call, c.batch_size
        due = (self._inserted - c.replay.min_size) * c.replay.samples_per_insert / c.batch_size - self.learner_steps
        for _ in range(int(due) // c.sgd_steps_per_call):
            chosen = self._rng.integers(min(self._inserted, c.replay.max_size), size=calls_of)
            data = Transition(*(leaf[chosen] for leaf in self._ring[:5]))
            self._state = self._update(self._state, data)
            self.learner_steps += c.sgd_steps_per_call
