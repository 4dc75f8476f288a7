"""Advances a compiled run of one or several seeds by calls of the compiled loop."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext import envs, interfaces
from acme_ext.acting import memories
from acme_ext.acting.variables import POLICY
from acme_ext.envs.backend import environment_seed
from acme_ext.envs.functional import FunctionalEnvironment, canonical_functional, row_keys
from acme_ext.envs.jax_games import Jax
from acme_ext.errors import NotFiniteError, UsageError, nearest
from acme_ext.launch.engines.compiled.loops import EvaluationLoop, Loop
from acme_ext.launch.engines.compiled.state import NONE_ENDED, RunState, Scores
from acme_ext.launch.runs.evaluation import LONG, Loaded, Score, endless
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.saving import Contents
from acme_ext.launch.runs.start import Start
from acme_ext.launch.session import Session
from acme_ext.types import Array, Tree
from acme_ext.utils import compiling

_CALL_S = 0.5  # approximate duration of a compiled call; signals are handled between two calls
_REPLAY = "replay"  # name of the replay in a checkpoint, which may lack it


def environment_of(experiment: Experiment, *, evaluation: bool = False) -> FunctionalEnvironment:
    """Returns an experiment's environment as pure functions; raises UsageError if it isn't written in JAX."""
    environment = envs.make_functional(
        experiment.environment, seed=experiment.seed, evaluation=evaluation, **experiment.options
    )
    if environment is None:
        name = experiment.environment_name
        names = [f"jax:{each}" for each in Jax().names()]
        raise UsageError(
            f"{name} is not written in JAX, so it can't run compiled: run it without --on compiled, or choose one "
            f"that is: {nearest('jax:' + name.partition(':')[2], names)}"
        )
    return canonical_functional(environment)


def keys_of(experiment: Experiment) -> tuple[Array, Array, Array, Array]:
    """Returns the keys for `Loop.init`; those of learner, environments and actions are the same as in one process."""
    environments = row_keys(environment_seed(experiment.seed, evaluation=False), experiment.num_envs)
    learner = experiment.key("learner")
    return learner, environments, experiment.key("actor"), jax.random.fold_in(learner, 1)


def _part(tree: Tree, seed: int) -> Tree:
    return jax.tree.map(lambda leaf: leaf[seed], tree)


class _Pace:
    """Chooses how many iterations a compiled call makes, so that it takes about `_CALL_S` seconds."""

    def __init__(self):
        self.most = 1
        """The iterations of the next call."""

    def adapt(self, made: int, took: float) -> None:
        """Chooses the next call's iterations, given those that a call made, and its seconds."""
        if took >= _CALL_S:
            self.most = max(1, int(made * _CALL_S / took))
        elif made == self.most:
            self.most = min(2 * self.most, 2**30)


class CompiledEngine:
    """The state of a compiled run on the device, and the calls that advance it.

    Args:
        start: the run.
        loop: the compiled loop.
        evaluated: the environment of evaluations.
        sessions: a session for each seed.
    """

    def __init__(self, start: Start, loop: Loop, evaluated: FunctionalEnvironment, sessions: Sequence[Session]):
        self._start, self._loop, self._evaluated, self._sessions = start, loop, evaluated, sessions
        self._experiment = start.experiment
        self._many = len(sessions) > 1
        self._world = self._begin()
        advance = loop.advance_all if self._many else loop.advance
        # Never `threaded`: with jaxlib 0.5.3, AlphaZero's loop made no steps when it was read from JAX's folder of
        # compiled programs.
        self._advance = compiling.jit(advance, donate_argnums=0)
        self._pace, self._evaluations = _Pace(), {}
        self._count()

    def _begin(self) -> RunState:
        """Returns the world of the checkpoints; makes a fresh one only for what they lack."""
        template = jax.eval_shape(self._loop.init, *keys_of(self._experiment))
        parts: list[Any] = [self._restored(session, template) for session in self._sessions]
        lacking = [part is None or (template.replay and not part.replay) for part in parts]
        fresh: Any = self._fresh() if any(lacking) else None
        if all(part is None for part in parts):
            return fresh
        for number, (part, lacks) in enumerate(zip(parts, lacking, strict=True)):
            if lacks:
                new = self._of_seed(fresh, number)
                parts[number] = new if part is None else part._replace(replay=new.replay)
        return jax.tree.map(lambda *each: jnp.stack(each), *parts) if self._many else parts[0]

    def _fresh(self) -> RunState:
        keys = [keys_of(session.experiment) for session in self._sessions]
        begin = jax.vmap(self._loop.init) if self._many else self._loop.init
        start = jax.tree.map(lambda *each: jnp.stack(each), *keys) if self._many else keys[0]
        where = None
        if self._loop.sharding:
            where = self._loop.sharding.of_state(jax.eval_shape(begin, *start), seeds=self._many)
        return compiling.jit(begin, out_shardings=where)(*start)

    def _restored(self, session: Session, template: RunState) -> RunState | None:
        """Restores a session and returns its world, see `_world`; None if it has no checkpoint."""
        restored = session.restore(_trees(template, with_replay=True), optional=[_REPLAY])
        return None if restored is None else _world(restored.trees)

    def advance(self) -> None:
        """Makes one compiled call of about `_CALL_S` seconds."""
        targets = np.array([session.next_stop for session in self._sessions], np.int32)
        began = time.monotonic()
        world = self._world
        if self._loop.sharding:  # arrays that a checkpoint or `metrics` replaced are on one device
            world = jax.device_put(world, self._loop.sharding.of_state(world, seeds=self._many))
        self._world, made = self._advance(world, targets if self._many else targets[0], np.int32(self._pace.most))
        self._pace.adapt(int(made), time.monotonic() - began)  # `int` waits for the device
        before = [session.counts.learner_steps for session in self._sessions]
        self._count()
        if any(count == 0 < s.counts.learner_steps for count, s in zip(before, self._sessions, strict=True)):
            self._pace = _Pace()

    def end_part(self) -> None:
        """Does nothing: a state holds the environments too, so every resumed run goes on exactly."""

    def finish(self) -> None:
        pass

    def _count(self) -> None:
        """Fetches the seeds' numbers of steps from the device."""
        counts = self._world.place.steps, self._world.learning.steps
        steps, learner_steps = (np.atleast_1d(x).tolist() for x in jax.device_get(counts))
        for session, *counted in zip(self._sessions, steps, learner_steps, strict=True):
            session.counts.environment_steps, session.counts.learner_steps = counted

    def metrics(self, due: Sequence[bool]) -> list[Mapping[str, Mapping[str, float]]]:
        self._check()
        ended, metrics = jax.device_get((self._world.ended, self._world.learning.metrics))
        rows: list[Mapping[str, Mapping[str, float]]] = []
        for number, (session, ready) in enumerate(zip(self._sessions, due, strict=True)):
            found: dict[str, Mapping[str, float]] = {}
            of_seed, learned = self._of_seed((ended, metrics), number)
            if ready and (count := int(of_seed.episodes)):
                found["actor"] = {
                    "environment_steps": session.steps,
                    "episode_return": float(of_seed.returns) / count,
                    "episode_length": float(of_seed.lengths) / count,
                    "episodes": count,
                }
                session.counts.environment_episodes += count
            if ready and session.counts.learner_steps:
                found["learner"] = {**session.columns(), **{name: float(x) for name, x in learned.items()}}
            rows.append(found)
        keep = ~np.array(due)
        left = jax.tree.map(lambda x: x * keep, ended) if self._many else NONE_ENDED
        reset = jax.tree.map(jnp.array, left)
        self._world = self._world._replace(ended=reset)
        return rows

    def loaded(self, index: int) -> Loaded:
        start, session = self._start, self._sessions[index]
        source = _NewestVariables(
            lambda: self._loop.agent.core.variables(self._of_seed(self._world.learning.state, index))
        )
        return Loaded(
            session.experiment,
            start.spec,
            start.agent,
            source,
            self._statistics(index),
            session.steps,
            start.actions,
        )

    def state(self, index: int, *, flushed: bool) -> Contents:
        self._check()
        trees = _trees(self._of_seed(self._world, index), with_replay=self._experiment.checkpoints.replay)
        return Contents(trees, {"standing": self._statistics(index), "exact": True})

    def doing(self) -> tuple[Mapping[str, str], str]:
        if not any(session.counts.learner_steps for session in self._sessions):
            return {"the run": "acting on the device, or compiling its program"}, ""
        return {"the run": "acting and learning on the device"}, ""

    def _check(self) -> None:
        """Raises NotFiniteError if a loss, gradient or TD error was not finite."""
        for session, bad in zip(self._sessions, np.atleast_1d(self._world.learning.bad_step).tolist(), strict=True):
            if bad >= 0:
                which = f" with the seed {session.experiment.seed}" if self._many else ""
                raise NotFiniteError(
                    f"the loss, gradient or TD error was not finite at learner step {bad}{which}: the run stops."
                )

    def _of_seed(self, tree: Tree, number: int) -> Tree:
        """Returns a seed's part of the run's state."""
        return _part(tree, number) if self._many else tree

    def evaluate(self, episodes: int, on_step: Callable[[], None]) -> list[Score]:
        if episodes not in self._evaluations:
            policy = self._loop.agent.evaluation_policy
            evaluation = EvaluationLoop(policy, self._evaluated, episodes, self._experiment.evaluation.num_envs)
            many = jax.vmap if self._many else lambda function, **_: function
            keys = [
                (
                    row_keys(environment_seed(each.experiment.seed, evaluation=True), evaluation.num_envs),
                    each.experiment.key("evaluator"),
                )
                for each in self._sessions
            ]
            stacked = jax.tree.map(lambda *each: jnp.stack(each), *keys) if self._many else keys[0]
            start = compiling.jit(many(evaluation.init))(*stacked)
            advance = compiling.jit(many(evaluation.advance, in_axes=(0, 0, None)))
            self._evaluations[episodes] = evaluation, start, advance, _Pace()
        evaluation, scores, advance, pace = self._evaluations[episodes]
        scores = self._with_standings(scores)
        variables = self._loop.agent.core.variables
        params = (jax.vmap(variables) if self._many else variables)(self._world.learning.state)[POLICY]
        if self._loop.sharding:
            params = jax.device_put(params, self._loop.sharding.devices[0])
        ended, since, told = 0, 0, False
        while (np.asarray(scores.finished) < evaluation.quota).any():
            on_step()
            began = time.monotonic()
            scores, made = advance(params, scores, np.int32(pace.most))
            made = int(np.max(made))  # waits for the device
            pace.adapt(made, time.monotonic() - began)
            before, ended = ended, int(np.sum(scores.finished))
            since = since + made if ended == before else 0
            if since >= LONG and not told:
                self._sessions[0].report(endless(self._experiment))
                told = True
        returns, lengths = (np.asarray(x).reshape(len(self._sessions), *x.shape[-2:]) for x in scores[2:])
        made = np.arange(returns.shape[-1]) < evaluation.quota[:, None]  # [N, Q]
        return [Score(r[made].astype(np.float64), n[made]) for r, n in zip(returns, lengths, strict=True)]

    def _statistics(self, number: int) -> list[list] | None:
        """Returns a seed's shared statistics as JSON values, see `acting.policy.Policy`; None if there are none."""
        statistics, memory = self._loop.agent.policy.shared_statistics, self._world.place.carry
        if statistics is None:
            return None
        return memories.to_json(statistics(self._of_seed(jax.device_get(memory.run), number)))

    def _with_standings(self, scores: Scores) -> Scores:
        """Returns the initial state of an evaluation, with the seeds' statistics in its policies' state."""
        memory = scores.place.carry
        if self._loop.agent.policy.shared_statistics is None:
            return scores
        each = [self._of_seed(memory.run, i) for i in range(len(self._sessions))]
        runs = [memories.of_each(self._statistics(i), run) for i, run in enumerate(each)]
        run = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs) if self._many else runs[0]
        return scores._replace(place=scores.place._replace(carry=memory._replace(run=run)))


class _NewestVariables(interfaces.VariableSource):
    """The variables that a function returns; they are fetched only when they are needed."""

    def __init__(self, variables: Callable[[], Mapping[str, Any]]):
        self._variables = variables

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        variables = self._variables()
        return [variables[name] for name in names]


def _trees(world: RunState, *, with_replay: bool) -> dict[str, Any]:
    """Returns the trees of a world's checkpoint; the learner's state has the name under which evaluations read it."""
    rest = world._replace(learning=world.learning._replace(state=()), replay=())
    trees = {"learner": world.learning.state, "world": rest}
    return {**trees, _REPLAY: world.replay} if with_replay and world.replay else trees


def _world(trees: Mapping[str, Any]) -> RunState:
    """Returns the world of a checkpoint's trees; its replay is `()` if there is none."""
    rest = trees["world"]
    world = rest._replace(learning=rest.learning._replace(state=trees["learner"]), replay=trees.get(_REPLAY, ()))
    return jax.tree.map(_copied, world)


def _copied(leaf: Any) -> Array:
    """Returns a copy that JAX owns: an array that shares NumPy's memory must not be donated."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.array(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
    return jnp.array(leaf)
