"""The loops of a compiled run, as pure functions of one seed's state; `jax.vmap` runs many seeds."""

from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.inference import reset_and_apply, slot_keys
from acme_ext.acting.policy import Context, Policy
from acme_ext.acting.variables import POLICY
from acme_ext.builders.base import Agent
from acme_ext.envs.functional import FunctionalEnvironment
from acme_ext.errors import UsageError
from acme_ext.launch.engines.compiled.spread import Spread
from acme_ext.learning.core import is_finite
from acme_ext.learning.prioritized import importance_weights
from acme_ext.replay.device import DeviceReplay, Happened, device_replay
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.types import FIRST, LAST, Array, Params, Sample, Sequence, Tree
from acme_ext.utils.trees import select


class Place(NamedTuple):
    """The state of N environments and of the policy that acts in them."""

    environment: Tree  # [N] FunctionalState
    timestep: dm_env.TimeStep  # [N, ...] the newest
    policy: Tree  # [N, ...] the policy's recurrent state
    carry: Tree  # [N, ...] the policy's other state, see `acting.policy.Carry`
    keys: Array  # [N] random keys of the actions
    ticks: Array  # [] int32 number of calls of the policy, including those whose step was a reset
    steps: Array  # [] int32 environment steps, summed over the environments; resets don't count
    returns: Array  # [N] float32 return of the current episode so far
    lengths: Array  # [N] int32 steps of the current episode so far


class Ended(NamedTuple):
    """Sums over ended episodes."""

    episodes: Array  # [] int32
    returns: Array  # [] float32
    lengths: Array  # [] int32


NONE_ENDED = Ended(np.int32(0), np.float32(0), np.int32(0))  # type: ignore


class Learning(NamedTuple):
    """The learner's state."""

    state: Any  # state of the `LearnerCore`
    steps: Array  # [] int32 learner steps
    bad_step: Array  # [] int32 the first learner step with a loss, gradient or TD error that is not finite; -1: none
    metrics: dict[str, Array]  # [] each; of the newest learner step


class World(NamedTuple):
    """The whole state of one seed's run."""

    learning: Learning
    place: Place
    ended: Ended  # episodes that ended since the actor's last log row
    replay: Any  # DeviceReplayState; empty for agents that learn from unrolls
    key: Array  # [] random key for sampling from the replay


class Scores(NamedTuple):
    """The state of an evaluation."""

    place: Place
    finished: Array  # [N] int32 number of finished episodes
    returns: jax.Array  # [N, Q] float32 returns of the finished episodes
    lengths: jax.Array  # [N, Q] int32 their lengths


def _start(environment: FunctionalEnvironment, policy: Policy, environment_keys: Array, keys: Array) -> Place:
    state, timestep = jax.vmap(environment.reset)(environment_keys)
    count, zero = len(keys), jnp.int32(0)
    return Place(
        environment=state,
        timestep=timestep,
        policy=jax.tree.map(jnp.asarray, policy.init_state(count)),
        carry=jax.tree.map(jnp.asarray, policy.init_carry(count)),
        keys=keys,
        ticks=zero,
        steps=zero,
        returns=jnp.zeros(count, jnp.float32),
        lengths=jnp.zeros(count, jnp.int32),
    )


def _step(
    environment: FunctionalEnvironment, policy: Policy, params: Params, place: Place
) -> tuple[Place, Happened, Array]:
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
    action, extras, used, after, carry = reset_and_apply(policy, params, context, before.observation, place.policy)
    state, timestep = jax.vmap(environment.step)(place.environment, action)
    moved = timestep.step_type != FIRST
    place = place._replace(
        environment=state,
        timestep=timestep,
        policy=after,
        carry=carry,
        ticks=place.ticks + 1,
        steps=place.steps + jnp.sum(moved, dtype=jnp.int32),
        returns=select(moved, place.returns + timestep.reward, 0.0),
        lengths=select(moved, place.lengths + 1, 0),
    )
    return place, Happened(before, action, extras, used), timestep.step_type == LAST


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
        spread: how arrays are split over several devices; None: there is one device.

    Raises:
        UsageError: the agent can't run compiled with these settings; the message says why.
    """

    def __init__(
        self,
        agent: Agent,
        environment: FunctionalEnvironment,
        num_envs: int,
        name: str,
        spread: Spread | None = None,
    ):
        self.agent, self._environment, self._num_envs, self.spread = agent, environment, num_envs, spread
        replay = agent.replay
        self._rounds = self._batches = 1
        self._replay: DeviceReplay | None = None
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

    def init(self, learner_key: Array, environment_keys: Array, actor_key: Array, replay_key: Array) -> World:
        """Returns the initial world; `environment_keys` are `[N]`."""
        place = _start(self._environment, self.agent.policy, environment_keys, slot_keys(actor_key, self._num_envs))
        state = jax.tree.map(jnp.asarray, self.agent.core.init(learner_key))
        replay: Any = ()
        params = self.agent.core.variables(state)[POLICY]
        if self._replay is not None:
            _, happened, _ = jax.eval_shape(self._act, params, place)
            replay = self._replay.init(happened)
        learning = Learning(state, jnp.int32(0), jnp.int32(-1), {})
        metrics = jax.eval_shape(self._metrics_of, learning, place, replay)
        learning = learning._replace(metrics={name: jnp.zeros(m.shape, m.dtype) for name, m in metrics.items()})
        return World(learning, place, jax.tree.map(jnp.asarray, NONE_ENDED), replay, replay_key)

    def advance(self, world: World, target: Array, most: Array) -> tuple[World, Array]:
        """Returns the world after iterations until it has taken `target` `[]` environment steps, or `most` `[]`
        iterations; and the iterations made. It stops after the first iteration that makes a learner step, because
        iterations take longer from then on.
        """

        def going(carry: tuple[World, Array]) -> Array:
            return (carry[0].place.steps < target) & (carry[1] < most) & ~_begins_to_learn(world, carry[0])

        return jax.lax.while_loop(going, lambda c: (self._iterate(c[0], True), c[1] + 1), (world, jnp.int32(0)))

    def advance_all(self, worlds: World, targets: Array, most: Array) -> tuple[World, Array]:
        """Does the same as `advance` for worlds `[S]` with targets `[S]`.

        A world that has reached its target doesn't change while the others continue.
        """

        def active(worlds: World) -> Array:
            return worlds.place.steps < targets

        def going(carry: tuple[World, Array]) -> Array:
            return jnp.any(active(carry[0])) & (carry[1] < most) & ~_begins_to_learn(worlds, carry[0])

        def body(carry: tuple[World, Array]) -> tuple[World, Array]:
            return jax.vmap(self._waiting)(carry[0], active(carry[0])), carry[1] + 1

        return jax.lax.while_loop(going, body, (worlds, jnp.int32(0)))

    def _waiting(self, world: World, active: Array) -> World:
        after = self._iterate(world, active)
        # The replay is large, so `_with_replay` uses `active` itself instead of copying it here.
        rest = select(active, after._replace(replay=()), world._replace(replay=()))
        return rest._replace(replay=after.replay)

    def _iterate(self, world: World, active: Array | bool) -> World:
        world = self._with_unrolls(world) if self._replay is None else self._with_replay(world, active)
        return self.spread.held(world) if self.spread else world

    def _act(self, params: Params, place: Place) -> tuple[Place, Happened, Array]:
        return _step(self._environment, self.agent.policy, params, place)

    def _params(self, learning: Learning) -> Params:
        return self.agent.core.variables(learning.state)[POLICY]

    def _learn(self, learning: Learning, data: Any, weight: Array) -> tuple[Learning, Array | None]:
        if self.spread:
            timed = isinstance(data, Sequence)
            state = self.spread.batch(data.state, 0) if timed else ()
            data = self.spread.batch(data, int(timed))
            data = data._replace(state=state) if timed else data
        state, metrics, errors = self.agent.core.step(learning.state, Sample(data, weight))
        finite = is_finite(metrics, errors if self.agent.replay.prioritized else None)
        steps = learning.steps + 1
        bad_step = select((learning.bad_step < 0) & ~finite, steps, learning.bad_step)
        return Learning(state, steps, bad_step, metrics), errors

    def _metrics_of(self, learning: Learning, place: Place, replay: Any) -> dict[str, Array]:
        """Returns the metrics of a learner step; called only for their shapes."""
        if self._replay is None:
            unrolls = self._roll_out(self._params(learning), place, NONE_ENDED)[2]
            data: Any = self._batches_of(unrolls)[0]
        else:
            data = self._replay.draw(replay, jax.random.key(0)).items
        return self._learn(learning, data, jnp.ones(self.agent.replay.batch_size))[0].metrics

    def _with_replay(self, world: World, active: Array | bool) -> World:
        assert self._replay is not None
        device, replay = self._replay, self.agent.replay
        place, happened, last = self._act(self._params(world.learning), world.place)
        held = device.add(world.replay, happened, active)

        # Sampling doesn't change these parts of the replay. With several seeds they stay outside the loop's carry,
        # which `vmap` copies at every learner step. With one seed they are in the carry, because XLA would otherwise
        # copy them before the loop.
        fixed = {} if active is True else {"items": held.items, "pending": held.pending}
        none = dict.fromkeys(fixed, ())

        def due(carry: tuple[Learning, Any]) -> Array:
            return device.due(carry[1]) & active

        at_once = device.at_once(held)

        def learn(carry: tuple[Learning, Any]) -> tuple[Learning, Any]:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(world.key, carry[0].steps + jnp.arange(at_once))
            batches = jax.vmap(device.draw, (None, 0))(carry[1]._replace(**fixed), keys)

            def step(carry: tuple[Learning, Any, Array]) -> tuple[Learning, Any, Array]:
                learning, held, number = carry
                drawn = jax.tree.map(lambda x: x[number], batches)
                weight = jnp.ones_like(drawn.probability)
                if replay.prioritized:
                    weight = importance_weights(drawn.probability, replay.importance_exponent_at(learning.steps))
                learning, errors = self._learn(learning, drawn.items, weight)
                return learning, device.counted(device.reprioritized(held, drawn.index, errors)), number + 1

            if at_once == 1:
                return step((*carry, jnp.int32(0)))[:2]
            return jax.lax.while_loop(
                lambda carry: due(carry[:2]) & (carry[2] < at_once), step, (*carry, jnp.int32(0))
            )[:2]

        learning, held = jax.lax.while_loop(due, learn, (world.learning, held._replace(**none)))
        held = held._replace(**fixed)
        return world._replace(learning=learning, place=place, ended=_count(world.ended, place, last), replay=held)

    def _with_unrolls(self, world: World) -> World:
        params = self._params(world.learning)

        def a_round(carry: tuple[Place, Ended], _: None) -> tuple[tuple[Place, Ended], Sequence]:
            place, ended, unrolls = self._roll_out(params, *carry)
            return (place, ended), unrolls

        if self._rounds == 1:
            (place, ended), unrolls = a_round((world.place, world.ended), None)
        else:
            (place, ended), rounds = jax.lax.scan(a_round, (world.place, world.ended), length=self._rounds)
            state = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rounds.state)
            timed = jax.tree.map(
                lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:]), rounds._replace(state=())
            )
            unrolls = timed._replace(state=state)
        batches, weight = self._batches_of(unrolls), jnp.ones(self.agent.replay.batch_size)
        learning = world.learning
        if len(batches) == 1:
            learning, _ = self._learn(learning, batches[0], weight)
        else:
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)
            learning, _ = jax.lax.scan(
                lambda learning, batch: (self._learn(learning, batch, weight)[0], None), learning, stacked
            )
        return world._replace(learning=learning, place=place, ended=ended)

    def _batches_of(self, unrolls: Sequence) -> list[Sequence]:
        """Returns the learner's batches, with the unrolls in the order in which a queue would return them."""
        size = self.agent.replay.batch_size
        batches = []
        for start in range(0, size * self._batches, size):
            timed = jax.tree.map(lambda x, start=start: x[:, start : start + size], unrolls._replace(state=()))
            state = jax.tree.map(lambda x, start=start: x[start : start + size], unrolls.state)
            batches.append(timed._replace(state=state))
        return batches

    def _roll_out(self, params: Params, place: Place, ended: Ended) -> tuple[Place, Ended, Sequence]:
        """Acts for the steps of an unroll.

        Returns:
            The new place and sums over ended episodes, and the unrolls of all environments, time first, with the same
            contents as those of `SequenceReplay`.
        """
        replay: Any = self.agent.replay
        before = select(place.timestep.step_type == FIRST, self.agent.policy.init_state(1), place.policy)

        def tick(carry: tuple[Place, Ended], _: None) -> tuple[tuple[Place, Ended], Happened]:
            place, happened, last = self._act(params, carry[0])
            return (place, _count(carry[1], place, last)), happened._replace(state=())

        (place, ended), happened = jax.lax.scan(tick, (place, ended), length=replay.length)
        steps = jax.tree.map(lambda xs, x: jnp.concatenate([xs, x[None]]), happened.timestep, place.timestep)
        mask = steps.step_type[:-1] != LAST
        return (
            place,
            ended,
            Sequence(
                observation=steps.observation,
                reward=steps.reward,
                first=steps.step_type == FIRST,
                action=happened.action,
                discount=select(mask, replay.discount * steps.discount[1:], 0.0),
                mask=mask.astype(jnp.float32),
                extras=happened.extras,
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


def _begins_to_learn(before: World, now: World) -> Array:
    """Returns `[]` whether a run has made its first learner step since `before`."""
    return jnp.any((before.learning.steps == 0) & (now.learning.steps > 0))


def _count(ended: Ended, place: Place, last: Array) -> Ended:
    return Ended(
        ended.episodes + jnp.sum(last, dtype=jnp.int32),
        ended.returns + jnp.sum(select(last, place.returns, 0.0)),
        ended.lengths + jnp.sum(select(last, place.lengths, 0), dtype=jnp.int32),
    )
