"""The loops of a compiled run, as pure functions of one seed's state; `jax.vmap` runs many seeds."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.inference import reset_and_apply, slot_keys
from acme_ext.acting.policy import Context, Policy
from acme_ext.acting.variables import POLICY
from acme_ext.builders.base import Agent
from acme_ext.envs.functional import FunctionalEnvironment
from acme_ext.errors import UsageError
from acme_ext.launch.engines.compiled.sharding import Sharding
from acme_ext.launch.engines.compiled.state import NONE_ENDED, Ended, Learning, RolloutState, RunState, Scores
from acme_ext.learning.core import is_finite
from acme_ext.learning.prioritized import importance_weights
from acme_ext.replay.device import Sampled, Step, device_replay
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.types import FIRST, LAST, Array, Params, Sample, Sequence
from acme_ext.utils.trees import merge_axes, select


def _start(environment: FunctionalEnvironment, policy: Policy, environment_keys: Array, keys: Array) -> RolloutState:
    state, timestep = jax.vmap(environment.reset)(environment_keys)
    count, zero = len(keys), jnp.int32(0)
    return RolloutState(
        environment=state,
        timestep=timestep,
        policy=jax.tree.map(jnp.asarray, policy.init_state(count)),
        carry=jax.tree.map(jnp.asarray, policy.init_policy_memory(count)),
        keys=keys,
        ticks=zero,
        steps=zero,
        returns=jnp.zeros(count, jnp.float32),
        lengths=jnp.zeros(count, jnp.int32),
    )


def _step(
    environment: FunctionalEnvironment, policy: Policy, params: Params, place: RolloutState
) -> tuple[RolloutState, Step, Array]:
    """Acts once in all environments.

    Returns:
        The new place, the step's data for the replay, and `[N]` whether the step ended an episode. The returned place
        still has the returns and lengths of ended episodes; the next step sets them to 0.
    """
    before = place.timestep
    first, count = before.step_type == FIRST, len(place.lengths)
    ranks = jnp.linspace(0, 1, count, dtype=jnp.float32)
    keys = jax.vmap(jax.random.fold_in)(place.keys, jnp.broadcast_to(place.ticks, ranks.shape))
    context = Context(keys, place.steps, ranks, before.reward, first, place.carry)
    action, extras, used, after, memory = reset_and_apply(policy, params, context, before.observation, place.policy)
    state, timestep = jax.vmap(environment.step)(place.environment, action)
    moved = timestep.step_type != FIRST
    place = place._replace(
        environment=state,
        timestep=timestep,
        policy=after,
        carry=memory,
        ticks=place.ticks + 1,
        steps=place.steps + jnp.sum(moved, dtype=jnp.int32),
        returns=select(moved, place.returns + timestep.reward, 0.0),
        lengths=select(moved, place.lengths + 1, 0),
    )
    return place, Step(before, action, extras, used), timestep.step_type == LAST


class Loop:
    """The training loop.

    With a replay, an iteration is one step of all environments, followed by the learner steps that the rate limit then
    allows. Without one, an iteration collects unrolls of `length` steps from all environments until they fill at least
    one batch, and then makes a learner step for each batch. A run in one process does the same.

    Args:
        agent: the agent's parts.
        environment: the environment to act in.
        num_envs: the number of environments, N.
        name: the agent's name, for messages.
        sharding: how arrays are split over several devices; None: there is one device.

    Raises:
        UsageError: the agent can't run compiled with these settings; the message says why.
    """

    def __init__(
        self,
        agent: Agent,
        environment: FunctionalEnvironment,
        num_envs: int,
        name: str,
        sharding: Sharding | None = None,
    ):
        self.agent, self._environment, self._num_envs, self.sharding = agent, environment, num_envs, sharding
        replay = agent.replay
        self._rounds = self._batches = 1
        self._replay: Any = None  # a DeviceReplay; None for agents that learn from unrolls
        if isinstance(replay, TransitionReplay | SequenceReplay) and not replay.fifo:
            self._replay = device_replay(replay, num_envs)
        elif not isinstance(replay, SequenceReplay):
            raise UsageError(
                f"{name} can't run compiled, because its replay has neither transitions nor sequences. Run it without "
                "--on compiled."
            )
        elif num_envs % replay.batch_size == 0:
            self._batches = num_envs // replay.batch_size
        elif replay.batch_size % num_envs == 0:
            self._rounds = replay.batch_size // num_envs
        else:
            raise UsageError(
                f"num_envs is {num_envs} and batch_size is {replay.batch_size}: in a compiled run one must be a "
                "multiple of the other, because all environments finish their unrolls at the same time."
            )

    def init(self, learner_key: Array, environment_keys: Array, actor_key: Array, replay_key: Array) -> RunState:
        """Returns the initial state; `environment_keys` are `[N]`."""
        place = _start(self._environment, self.agent.policy, environment_keys, slot_keys(actor_key, self._num_envs))
        state = jax.tree.map(jnp.asarray, self.agent.core.init(learner_key))
        replay: Any = ()
        params = self.agent.core.variables(state)[POLICY]
        if self._replay is not None:
            _, step, _ = jax.eval_shape(self._act, params, place)
            replay = self._replay.init(step)
        learning = Learning(state, jnp.int32(0), jnp.int32(-1), {})
        metrics = jax.eval_shape(self._metrics_of, learning, place, replay)
        learning = learning._replace(metrics={name: jnp.zeros(m.shape, m.dtype) for name, m in metrics.items()})
        return RunState(learning, place, jax.tree.map(jnp.asarray, NONE_ENDED), replay, replay_key)

    def advance(self, state: RunState, target: Array, most: Array) -> tuple[RunState, Array]:
        """Returns the state after iterations until it has taken `target` `[]` environment steps, or `most` `[]`
        iterations; and the iterations made. It stops after the first iteration that makes a learner step, because
        iterations take longer from then on.
        """

        def going(carry: tuple[RunState, Array]) -> Array:
            return (carry[0].place.steps < target) & (carry[1] < most) & ~_begins_to_learn(state, carry[0])

        return jax.lax.while_loop(going, lambda c: (self._iterate(c[0], True), c[1] + 1), (state, jnp.int32(0)))

    def advance_all(self, states: RunState, targets: Array, most: Array) -> tuple[RunState, Array]:
        """Does the same as `advance` for states `[S]` with targets `[S]`.

        A state that has reached its target doesn't change while the others continue.
        """

        def active(states: RunState) -> Array:
            return states.place.steps < targets

        def going(carry: tuple[RunState, Array]) -> Array:
            return jnp.any(active(carry[0])) & (carry[1] < most) & ~_begins_to_learn(states, carry[0])

        def body(carry: tuple[RunState, Array]) -> tuple[RunState, Array]:
            return jax.vmap(self._waiting)(carry[0], active(carry[0])), carry[1] + 1

        return jax.lax.while_loop(going, body, (states, jnp.int32(0)))

    def _waiting(self, state: RunState, active: Array) -> RunState:
        after = self._iterate(state, active)
        # The replay is large, so `_with_replay` uses `active` itself instead of copying it here.
        rest = select(active, after._replace(replay=()), state._replace(replay=()))
        return rest._replace(replay=after.replay)

    def _iterate(self, state: RunState, active: Array | bool) -> RunState:
        state = self._with_unrolls(state) if self._replay is None else self._with_replay(state, active)
        return self.sharding.held(state) if self.sharding else state

    def _act(self, params: Params, place: RolloutState) -> tuple[RolloutState, Step, Array]:
        return _step(self._environment, self.agent.policy, params, place)

    def _params(self, learning: Learning) -> Params:
        return self.agent.core.variables(learning.state)[POLICY]

    def _learn(self, learning: Learning, data: Any, weight: Array) -> tuple[Learning, Array | None]:
        if self.sharding:
            timed = isinstance(data, Sequence)
            state = self.sharding.batch(data.state, 0) if timed else ()
            data = self.sharding.batch(data, int(timed))
            data = data._replace(state=state) if timed else data
        state, metrics, errors = self.agent.core.step(learning.state, Sample(data, weight))
        finite = is_finite(metrics, errors if self.agent.replay.prioritized else None)
        steps = learning.steps + 1
        bad_step = select((learning.bad_step < 0) & ~finite, steps, learning.bad_step)
        return Learning(state, steps, bad_step, metrics), errors

    def _metrics_of(self, learning: Learning, place: RolloutState, replay: Any) -> dict[str, Array]:
        """Returns the metrics of a learner step; called only for their shapes."""
        if self._replay is None:
            unrolls = self._roll_out(self._params(learning), place, NONE_ENDED)[2]
            data: Any = self._batches_of(unrolls)[0]
        else:
            data = self._replay.draw(replay, jax.random.key(0)).items
        return self._learn(learning, data, jnp.ones(self.agent.replay.batch_size))[0].metrics

    def _with_replay(self, state: RunState, active: Array | bool) -> RunState:
        place, step, last = self._act(self._params(state.learning), state.place)
        replay = self._replay.add(state.replay, step, active)
        learning, replay = self._learn_while_due(state.learning, replay, state.key, active)
        return state._replace(learning=learning, place=place, ended=_count(state.ended, place, last), replay=replay)

    def _learn_while_due(self, learning: Learning, replay: Any, key: Array, active: Array | bool) -> tuple:
        """Makes as many learner steps as the rate limit allows; returns the learner's state and the replay."""
        # Sampling doesn't change these parts of the replay. With several seeds they stay outside the loop's carry,
        # which `vmap` copies at every learner step. With one seed they are in the carry, because XLA would otherwise
        # copy them before the loop.
        fixed = {} if active is True else {"items": replay.items, "pending": replay.pending}
        carry = learning, replay._replace(**dict.fromkeys(fixed, ()))
        is_due = functools.partial(self._is_due, active)
        learn = functools.partial(self._learn_from_samples, fixed, key, is_due, self._replay.at_once(replay))
        learning, replay = jax.lax.while_loop(is_due, learn, carry)
        return learning, replay._replace(**fixed)

    def _is_due(self, active: Array | bool, carry: tuple[Learning, Any]) -> Array:
        return self._replay.due(carry[1]) & active

    def _learn_from_samples(
        self, fixed: dict[str, Any], key: Array, is_due: Callable, count: int, carry: tuple[Learning, Any]
    ) -> tuple[Learning, Any]:
        """Samples `count` batches, and learns from them while the rate limit allows it."""
        learning, replay = carry
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, learning.steps + jnp.arange(count))
        batches = jax.vmap(self._replay.draw, (None, 0))(replay._replace(**fixed), keys)
        if count == 1:
            return self._learn_from_sample(batches, (*carry, jnp.int32(0)))[:2]
        return jax.lax.while_loop(
            lambda carry: is_due(carry[:2]) & (carry[2] < count),
            functools.partial(self._learn_from_sample, batches),
            (*carry, jnp.int32(0)),
        )[:2]

    def _learn_from_sample(self, batches: Sampled, carry: tuple[Learning, Any, Array]) -> tuple[Learning, Any, Array]:
        """Makes a learner step from one of several batches, and updates the priorities of its items."""
        learning, replay, number = carry
        sampled = jax.tree.map(lambda x: x[number], batches)
        weight = jnp.ones_like(sampled.probability)
        if self.agent.replay.prioritized:
            weight = importance_weights(sampled.probability, self.agent.replay.importance_exponent_at(learning.steps))
        learning, errors = self._learn(learning, sampled.items, weight)
        return learning, self._replay.counted(self._replay.reprioritized(replay, sampled.index, errors)), number + 1

    def _with_unrolls(self, state: RunState) -> RunState:
        params = self._params(state.learning)

        def a_round(carry: tuple[RolloutState, Ended], _: None) -> tuple[tuple[RolloutState, Ended], Sequence]:
            place, ended, unrolls = self._roll_out(params, *carry)
            return (place, ended), unrolls

        (place, ended), rounds = jax.lax.scan(a_round, (state.place, state.ended), length=self._rounds)
        timed = jax.tree.map(
            lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], x.shape[0] * x.shape[2], *x.shape[3:]),
            rounds._replace(state=()),
        )
        unrolls = timed._replace(state=merge_axes(rounds.state))
        batches, weight = self._batches_of(unrolls), jnp.ones(self.agent.replay.batch_size)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)
        learning, _ = jax.lax.scan(
            lambda learning, batch: (self._learn(learning, batch, weight)[0], None), state.learning, stacked
        )
        return state._replace(learning=learning, place=place, ended=ended)

    def _batches_of(self, unrolls: Sequence) -> list[Sequence]:
        """Returns the learner's batches, with the unrolls in the order in which a queue would return them."""
        size = self.agent.replay.batch_size
        batches = []
        for start in range(0, size * self._batches, size):
            timed = jax.tree.map(lambda x, start=start: x[:, start : start + size], unrolls._replace(state=()))
            state = jax.tree.map(lambda x, start=start: x[start : start + size], unrolls.state)
            batches.append(timed._replace(state=state))
        return batches

    def _roll_out(self, params: Params, place: RolloutState, ended: Ended) -> tuple[RolloutState, Ended, Sequence]:
        """Acts for the steps of an unroll.

        Returns:
            The new place and sums over ended episodes, and the unrolls of all environments, time first, with the same
            contents as those of `SequenceReplay`.
        """
        replay: Any = self.agent.replay
        before = select(place.timestep.step_type == FIRST, self.agent.policy.init_state(1), place.policy)

        def tick(carry: tuple[RolloutState, Ended], _: None) -> tuple[tuple[RolloutState, Ended], Step]:
            place, step, last = self._act(params, carry[0])
            return (place, _count(carry[1], place, last)), step._replace(state=())

        (place, ended), step = jax.lax.scan(tick, (place, ended), length=replay.length)
        steps = jax.tree.map(lambda xs, x: jnp.concatenate([xs, x[None]]), step.timestep, place.timestep)
        mask = steps.step_type[:-1] != LAST
        return (
            place,
            ended,
            Sequence(
                observation=steps.observation,
                reward=steps.reward,
                first=steps.step_type == FIRST,
                action=step.action,
                discount=select(mask, replay.discount * steps.discount[1:], 0.0),
                mask=mask.astype(jnp.float32),
                extras=step.extras,
                state=before if jax.tree.leaves(replay.state) else (),
            ),
        )


class EvaluationLoop:
    """The evaluation loop, which acts in its own environments, as `runs.evaluation.Evaluator` does.

    Args:
        policy: the evaluation policy.
        environment: the environment to act in.
        episodes: the number of episodes, divided among the environments as evenly as possible.
        num_envs: the maximum number of environments.
    """

    def __init__(self, policy: Policy, environment: FunctionalEnvironment, episodes: int, num_envs: int):
        self._policy, self._environment = policy, environment
        self.num_envs = min(episodes, num_envs)
        """The number of environments, N."""
        self.quota = np.array([len(part) for part in np.array_split(np.arange(episodes), self.num_envs)], np.int32)
        """`[N]` number of episodes in each environment; the largest is Q."""

    def init(self, environment_keys: Array, actor_key: Array) -> Scores:
        """Returns the initial state of an evaluation; `environment_keys` are `[N]`."""
        place = _start(self._environment, self._policy, environment_keys, slot_keys(actor_key, self.num_envs))
        shape = (self.num_envs, int(self.quota.max()))
        return Scores(place, jnp.zeros(self.num_envs, jnp.int32), jnp.zeros(shape), jnp.zeros(shape, jnp.int32))

    def advance(self, params: Params, scores: Scores, most: Array) -> tuple[Scores, Array]:
        """Returns the evaluation after `most` `[]` more steps of all environments, or fewer if it finishes before; and
        the steps made.
        """
        rows = jnp.arange(self.num_envs)

        def going(carry: tuple[Scores, Array]) -> Array:
            return jnp.any(carry[0].finished < self.quota) & (carry[1] < most)

        def tick(carry: tuple[Scores, Array]) -> tuple[Scores, Array]:
            scores, count = carry
            place, _, last = _step(self._environment, self._policy, params, scores.place)
            at = select(last, scores.finished, scores.returns.shape[1])
            return (
                Scores(
                    place,
                    scores.finished + last,
                    scores.returns.at[rows, at].set(place.returns, mode="drop"),
                    scores.lengths.at[rows, at].set(place.lengths, mode="drop"),
                ),
                count + 1,
            )

        return jax.lax.while_loop(going, tick, (scores, jnp.int32(0)))


def _begins_to_learn(before: RunState, now: RunState) -> Array:
    """Returns `[]` whether a run has made its first learner step since `before`."""
    return jnp.any((before.learning.steps == 0) & (now.learning.steps > 0))


def _count(ended: Ended, place: RolloutState, last: Array) -> Ended:
    return Ended(
        ended.episodes + jnp.sum(last, dtype=jnp.int32),
        ended.returns + jnp.sum(select(last, place.returns, 0.0)),
        ended.lengths + jnp.sum(select(last, place.lengths, 0), dtype=jnp.int32),
    )
