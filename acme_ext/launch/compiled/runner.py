"""Compiled runs of one or several seeds: calls the compiled loop, logs, evaluates and saves checkpoints."""

import contextlib
import dataclasses
import numbers
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext import envs
from acme_ext.acting import carries
from acme_ext.acting.variables import POLICY
from acme_ext.envs.backend import environment_seed
from acme_ext.envs.functional import FunctionalEnvironment, canonical_functional, row_keys
from acme_ext.envs.jax_games import Jax
from acme_ext.errors import NotFiniteError, UsageError, nearest
from acme_ext.launch.compiled.loops import NONE_ENDED, EvaluationLoop, Loop, Scores, World
from acme_ext.launch.compiled.spread import Spread
from acme_ext.launch.processes.interrupt import Interrupt
from acme_ext.launch.runs import demonstrations
from acme_ext.launch.runs.console import console
from acme_ext.launch.runs.evaluation import LONG, Result, Score, endless
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.feasibility import NOTHING_LEARNED, check, foresee
from acme_ext.launch.runs.store import RunStore, check_directory, draw_curve, hold, prepare, say_resumed
from acme_ext.replay import blocks
from acme_ext.types import Array, Tree
from acme_ext.utils import compiling, worlds
from acme_ext.utils.progress import ProgressLine
from acme_ext.utils.rundir import RunDirectory

_CALL_S = 0.5  # approximate duration of a compiled call; signals are handled between two calls
_MOST_STEPS = 2_000_000_000  # steps are counted as int32, and the last call may make a few more
_REPLAY = "replay"  # name of the replay in a checkpoint, which may lack it
_CGROUPS = pathlib.Path("/sys/fs/cgroup")  # where Linux tells a container its limits
_ROWS = 200  # minimum number of rows in the logs of actor and learner, if the run has as many steps


def run(experiment: Experiment, *, seeds: int = 1, fresh: bool = False, quiet: bool = False) -> list[Result]:
    """Runs an experiment to its budget, as one compiled program.

    If the run directory has a part of this run, it is resumed. SIGINT and SIGTERM stop the run after it has saved a
    checkpoint, as in `launch.run`.

    Args:
        experiment: the experiment; its environment is `jax:NAME`, `board:GAME` or your own `FunctionalEnvironment`.
        seeds: the number of seeds to run together: the experiment's seed and those that follow it. With more than one,
            each seed N has its own run directory `sN` in the experiment's, and `curve.png` there shows all of them.
        fresh: deletes an earlier run in the directory and starts from the beginning.
        quiet: shows no progress line.

    Returns:
        The result of each seed.

    Raises:
        UsageError: nothing was started or written; the message says why.
        RunError: the run had to stop; the last undamaged checkpoints remain.
    """
    environment, evaluated = (environment_of(experiment, evaluation=each) for each in (False, True))
    if not isinstance(seeds, numbers.Integral) or isinstance(seeds, bool):
        raise UsageError(f"seeds is {seeds!r}: it must be a whole number.")
    seeds = int(seeds)
    if seeds < 1 or experiment.seed + seeds > 2**31:
        raise UsageError(f"seeds is {seeds}: it must be at least 1, and all seeds must be in [0, 2**31).")
    if experiment.steps > _MOST_STEPS:
        raise UsageError(f"steps is {experiment.steps}: a compiled run can make at most {_MOST_STEPS}.")
    if experiment.checkpoints.replay_every_s:
        raise UsageError(
            "a compiled run saves its replay with every checkpoint: leave checkpoints.replay_every_s at 0."
        )
    spec = experiment.make_spec()
    check(experiment, spec)
    agent = dataclasses.replace(experiment.make_agent(spec), sgd_steps_per_call=1)
    demonstrations.check(experiment, agent, spec)
    devices = experiment.devices()
    spread = Spread(devices, experiment.num_envs, agent.replay.batch_size) if devices else None
    loop = Loop(agent, environment, experiment.num_envs, type(experiment.builder).__name__, spread)
    _check_memory(jax.eval_shape(loop.init, *keys_of(experiment)), loop, seeds)
    several = of_seeds(experiment, seeds)
    with contextlib.ExitStack() as stack:
        progress, report, interrupt = stack.enter_context(console(experiment, quiet=quiet))
        for warning in foresee(experiment, dataclasses.replace(agent, replay=blocks.singly(agent.replay))):
            report(warning)
        world = {"world": "compiled"}
        root = _root(experiment, seeds)
        if seeds > 1 and root.is_dir() and RunDirectory(root).exists_run():
            raise UsageError(f"{root} holds a run of one seed: choose another directory for the {seeds} seeds' runs.")
        for each in several:  # all are checked before the first is changed
            check_directory(each, fresh=fresh, arrangement=world)
        rundirs = [prepare(each, fresh=fresh, arrangement=world) for each in several]
        stores = [
            stack.enter_context(hold(rundir, each, report)) for rundir, each in zip(rundirs, several, strict=True)
        ]
        if progress:
            report(f"the run directory is {root}")
        results = _Run(several, evaluated, loop, stores, progress, report).run(interrupt)
    if interrupt.requested:
        return [dataclasses.replace(result, stopped_by=interrupt.signal) for result in results]
    if seeds > 1:
        from acme_ext.utils import plots

        label = f"{experiment.builder.name} on {experiment.environment_name}"
        plots.learning_curves({label: rundirs}, root / "curve.png", experiment.step_key)
    return [
        dataclasses.replace(result, curve=draw_curve(each, rundir))
        for result, each, rundir in zip(results, several, rundirs, strict=True)
    ]


def environment_of(experiment: Experiment, *, evaluation: bool = False) -> FunctionalEnvironment:
    """Returns an experiment's environment as pure functions; raises UsageError if it isn't written in JAX."""
    if experiment.data is not None:
        raise UsageError("a run on recorded data has no environment to compile: run it without --on compiled.")
    if experiment.demos is not None:
        raise UsageError("compiled runs can't mix demonstrations into their replay: use only one of the two.")
    environment = envs.make_functional(
        experiment.environment, seed=experiment.seed, evaluation=evaluation, **experiment.options
    )
    if environment is None:
        name = experiment.environment_name
        names = [f"jax:{each}" for each in Jax().names()]
        otherwise = "run it without --on compiled, or " if worlds.has_reverb() else ""
        raise UsageError(
            f"{name} is not written in JAX, so it can't run compiled: {otherwise}choose one that is: "
            f"{nearest('jax:' + name.partition(':')[2], names)}"
        )
    return canonical_functional(environment)


def _root(experiment: Experiment, seeds: int) -> pathlib.Path:
    """Returns the directory of the run; with several seeds, the directory that contains theirs."""
    if seeds == 1 or experiment.run_dir is not None:
        return experiment.directory
    return experiment.directory.with_name(f"{experiment.directory.name}-to-s{experiment.seed + seeds - 1}")


def of_seeds(experiment: Experiment, seeds: int) -> list[Experiment]:
    """Returns the experiments of the single seeds, with the run directories that `run` describes."""
    if seeds == 1:
        return [experiment]
    root = _root(experiment, seeds)
    return [
        dataclasses.replace(experiment, seed=seed, run_dir=os.fspath(root / f"s{seed}"))
        for seed in range(experiment.seed, experiment.seed + seeds)
    ]


def keys_of(experiment: Experiment) -> tuple[Array, Array, Array, Array]:
    """Returns the keys for `Loop.init`; those of learner, environments and actions are the same as in one process."""
    environments = row_keys(environment_seed(experiment.seed, evaluation=False), experiment.num_envs)
    learner = experiment.key("learner")
    return learner, environments, experiment.key("actor"), jax.random.fold_in(learner, 1)


def _check_memory(world: World, loop: Loop, seeds: int) -> None:
    """Raises UsageError if a run's arrays don't fit into the device's memory."""
    held = loop.spread.nbytes(world, seeds) if loop.spread else _nbytes(world) * seeds
    if not world.replay:
        replay: Any = loop.agent.replay
        held += 3 * replay.length * max(replay.batch_size, len(world.place.lengths)) * seeds * _row_nbytes(world)
    free = _free_memory(len(loop.spread.devices) if loop.spread else 1)
    if held > free:
        large = "replay.max_size, " if world.replay else "replay.length, "
        raise UsageError(
            f"the run needs about {held / 1e9:.1f} GB of the device's memory, and {free / 1e9:.1f} GB are free: choose "
            f"a smaller {large}--num-envs or --seeds."
        )


def _nbytes(tree: Tree) -> int:
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _row_nbytes(world: World) -> int:
    return _nbytes(world.place.timestep) // len(world.place.lengths)


def _free_memory(devices: int) -> int:
    """Returns the free memory of this number of devices together, in bytes.

    Devices that are a machine's processors share its memory.
    """
    statistics = jax.local_devices()[0].memory_stats()
    if statistics and "bytes_limit" in statistics:
        return devices * (statistics["bytes_limit"] - statistics["bytes_in_use"])
    free = _free_in_container()
    if (memory := pathlib.Path("/proc/meminfo")).is_file():  # on Linux
        for line in memory.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                free = min(free, int(line.split()[1]) * 1024)
    return free


def _free_in_container() -> int:
    """Returns the memory that a container's limit leaves, in bytes; 2**62 if there is no limit."""
    free = 2**62
    for limit, used, of_all in (  # of the second and the first version of Linux's control groups
        ("memory.max", "memory.current", ""),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_"),
    ):
        with contextlib.suppress(OSError, ValueError):  # there is no such file, or the limit is "max"
            left = int((_CGROUPS / limit).read_text()) - int((_CGROUPS / used).read_text())
            for line in (_CGROUPS / limit).with_name("memory.stat").read_text().splitlines():
                name, count = line.split()
                if name in (f"{of_all}active_file", f"{of_all}inactive_file"):  # caches, which Linux frees when needed
                    left += int(count)
            free = min(free, left)
    return free


def _part(tree: Tree, seed: int) -> Tree:
    return jax.tree.map(lambda leaf: leaf[seed], tree)


class _Seed:
    """The counts and schedules of one seed's run, on the host."""

    def __init__(self, experiment: Experiment, store: RunStore):
        self.experiment, self.store = experiment, store
        every = experiment.evaluation.every
        self.rows_every = max(1, min(every or experiment.steps, experiment.steps // _ROWS))
        self.next_evaluation, self.next_row, self.episodes = every, self.rows_every, 0
        self.steps = self.learner_steps = self.logged = 0

    @property
    def target(self) -> int:
        """The environment steps of the next log row or evaluation, or of the end."""
        budget = self.experiment.steps
        return min(budget, self.next_row, self.next_evaluation or budget)

    @property
    def counts(self) -> dict[str, int]:
        return {"environment_steps": self.steps, "learner_steps": self.learner_steps}

    def pass_rows(self) -> bool:
        """Schedules the next log row after the current step; returns whether one was due."""
        due = self.next_row <= self.steps
        if due:
            self.next_row += ((self.steps - self.next_row) // self.rows_every + 1) * self.rows_every
        return due

    def pass_evaluations(self) -> bool:
        """Schedules the next evaluation after the current step; returns whether one was due."""
        due = self.experiment.evaluation.every > 0 and self.next_evaluation <= self.steps
        if due:
            self.next_evaluation = self.experiment.evaluation.after(self.steps)
        return due


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


class _Run:
    """A run's parts, and the loop over its compiled calls."""

    def __init__(
        self,
        experiments: Sequence[Experiment],
        evaluated: FunctionalEnvironment,
        loop: Loop,
        stores: Sequence[RunStore],
        progress: ProgressLine | None,
        report: Callable[[str], None],
    ):
        self.evaluated, self.loop, self.progress, self.report = evaluated, loop, progress, report
        self.experiment = experiments[0]
        self.seeds = [_Seed(*each) for each in zip(experiments, stores, strict=True)]
        self.many = len(self.seeds) > 1
        self.keeps_replay = self.experiment.checkpoints.replay
        self.world = self._begin()
        advance = loop.advance_all if self.many else loop.advance
        # Never `threaded`: with jaxlib 0.5.3, AlphaZero's loop made no steps when it was read from JAX's folder of
        # compiled programs.
        self.advance = compiling.jit(advance, donate_argnums=0)
        self.pace, self.evaluations = _Pace(), {}
        self._look()

    def _begin(self) -> World:
        """Returns the world of the checkpoints; makes a fresh one only for what they lack."""
        template = jax.eval_shape(self.loop.init, *keys_of(self.experiment))
        parts: list[Any] = [self._restored(seed, template) for seed in self.seeds]
        lacking = [part is None or (template.replay and not part.replay) for part in parts]
        fresh: Any = self._fresh() if any(lacking) else None
        if all(part is None for part in parts):
            return fresh
        for number, (part, lacks) in enumerate(zip(parts, lacking, strict=True)):
            if lacks:
                new = _part(fresh, number) if self.many else fresh
                parts[number] = new if part is None else part._replace(replay=new.replay)
        return jax.tree.map(lambda *each: jnp.stack(each), *parts) if self.many else parts[0]

    def _fresh(self) -> World:
        keys = [keys_of(seed.experiment) for seed in self.seeds]
        begin = jax.vmap(self.loop.init) if self.many else self.loop.init
        start = jax.tree.map(lambda *each: jnp.stack(each), *keys) if self.many else keys[0]
        where = None
        if self.loop.spread:
            where = self.loop.spread.of_world(jax.eval_shape(begin, *start), seeds=self.many)
        return compiling.jit(begin, out_shardings=where)(*start)

    def _restored(self, seed: _Seed, template: World) -> World | None:
        """Restores a seed's counts and returns its world, see `_world`; None if it has no checkpoint."""
        restored = seed.store.restore(_trees(template, with_replay=True), optional=[_REPLAY])
        if restored is None:
            return None
        state = restored.info["state"]
        seed.episodes = state["counts"]["counts"]["environment_episodes"]
        seed.next_row = state["next_row"]
        seed.logged = state["logged"]
        steps = state["counts"]["counts"]["environment_steps"]
        seed.next_evaluation = seed.experiment.evaluation.resumed(steps, state["next_evaluation"])
        self.report(say_resumed(seed.store.rundir, steps, self.experiment.steps))
        return _world(restored.trees)

    def run(self, interrupt: Interrupt) -> list[Result]:
        with contextlib.ExitStack() as stack:
            for seed in self.seeds:
                stack.enter_context(seed.store.checkpoints.explaining())
            while any(seed.steps < seed.experiment.steps for seed in self.seeds) and not interrupt.requested:
                self._call()
                if all(seed.steps >= seed.target for seed in self.seeds):
                    self._events(interrupt)
                if self.seeds[0].store.checkpoints.due():
                    self._save()
            self._log([seed.steps > seed.logged for seed in self.seeds])
            for seed in self.seeds:
                if seed.steps >= seed.experiment.steps:
                    seed.pass_evaluations()  # the final evaluation replaces one that is due at the end
            self._save()
            if not interrupt.requested and not any(seed.learner_steps for seed in self.seeds):
                self.report(NOTHING_LEARNED)
            scores = self._evaluate(self.experiment.evaluation.final_episodes, interrupt)
            if scores is not None:
                for number, (seed, score) in enumerate(zip(self.seeds, scores, strict=True)):
                    self._log_score(number, score)
                    seed.store.rundir.write_evaluation({"environment_steps": seed.steps, **score.to_json()})
        return [
            Result(seed.store.rundir.path, seed.steps, seed.learner_steps, scores[i] if scores else None, None)
            for i, seed in enumerate(self.seeds)
        ]

    def _call(self) -> None:
        """Makes one compiled call of about `_CALL_S` seconds."""
        targets = np.array([seed.target for seed in self.seeds], np.int32)
        began = time.monotonic()
        world = self.world
        if self.loop.spread:  # arrays that a checkpoint or `_log` replaced are on one device
            world = jax.device_put(world, self.loop.spread.of_world(world, seeds=self.many))
        self.world, made = self.advance(world, targets if self.many else targets[0], np.int32(self.pace.most))
        self.pace.adapt(int(made), time.monotonic() - began)  # `int` waits for the device
        before = [seed.learner_steps for seed in self.seeds]
        self._look()
        if any(count == 0 < seed.learner_steps for count, seed in zip(before, self.seeds, strict=True)):
            self.pace = _Pace()
        if self.progress:
            self.progress.update(
                environment_steps=float(np.mean([seed.steps for seed in self.seeds])),
                learner_steps=float(np.mean([seed.learner_steps for seed in self.seeds])),
            )

    def _look(self) -> None:
        """Fetches the seeds' numbers of steps from the device."""
        counts = self.world.place.steps, self.world.learning.steps
        steps, learner_steps = (np.atleast_1d(x).tolist() for x in jax.device_get(counts))
        for seed, *counted in zip(self.seeds, steps, learner_steps, strict=True):
            seed.steps, seed.learner_steps = counted

    def _events(self, interrupt: Interrupt) -> None:
        """Writes the log rows and makes the evaluations that are due; all seeds have reached their targets."""
        due = [seed.pass_rows() for seed in self.seeds]
        self._log(due)
        for seed in self.seeds:
            seed.store.tell({"the run": "acting and learning on the device"})
        schedules = [seed.next_evaluation for seed in self.seeds]
        due = [seed.pass_evaluations() and seed.steps < seed.experiment.steps for seed in self.seeds]
        if not any(due):
            return
        scores = self._evaluate(self.experiment.evaluation.episodes, interrupt)
        if scores is None:
            for seed, schedule in zip(self.seeds, schedules, strict=True):
                seed.next_evaluation = schedule  # the resumed run makes it
            return
        for number, (score, ready) in enumerate(zip(scores, due, strict=True)):
            if ready:
                self._log_score(number, score)

    def _log(self, due: Sequence[bool]) -> None:
        """Writes a log row for each seed that is due."""
        if not any(due):
            return
        self._check()
        ended, metrics = jax.device_get((self.world.ended, self.world.learning.metrics))
        for number, (seed, ready) in enumerate(zip(self.seeds, due, strict=True)):
            if not ready:
                continue
            seed.logged = seed.steps
            of_seed, row = _part((ended, metrics), number) if self.many else (ended, metrics)
            if count := int(of_seed.episodes):
                means = {
                    "episode_return": float(of_seed.returns) / count,
                    "episode_length": float(of_seed.lengths) / count,
                }
                seed.store.log("actor", {"environment_steps": seed.steps, **means, "episodes": count})
                seed.episodes += count
                if self.progress:
                    self.progress.update(episode_return=means["episode_return"])
            if seed.learner_steps:
                seed.store.log("learner", {**seed.counts, **{name: float(value) for name, value in row.items()}})
        if self.many:
            keep = ~np.array(due)
            self.world = self.world._replace(ended=jax.tree.map(lambda x: jnp.array(x * keep), ended))
        else:
            self.world = self.world._replace(ended=jax.tree.map(jnp.array, NONE_ENDED))

    def _log_score(self, number: int, score: Score) -> None:
        seed = self.seeds[number]
        seed.store.log("evaluator", {**seed.counts, **score.row()})

        def params() -> Tree:
            state = self.world.learning.state
            return self.loop.agent.core.variables(_part(state, number) if self.many else state)[POLICY]

        seed.store.best.offer(float(score.returns.mean()), seed.steps, params, self._standing(number))
        if self.progress:
            self.progress.update(evaluation=float(score.returns.mean()))

    def _check(self) -> None:
        for seed, bad in zip(self.seeds, np.atleast_1d(self.world.learning.bad_step).tolist(), strict=True):
            if bad >= 0:
                which = f" with the seed {seed.experiment.seed}" if self.many else ""
                raise NotFiniteError(
                    f"the loss, gradient or TD error was not finite at learner step {bad}{which}: the run stops."
                )

    def _save(self) -> None:
        """Saves checkpoints of all seeds; raises NotFiniteError if a loss, gradient or TD error was not finite."""
        self._check()
        for number, seed in enumerate(self.seeds):
            trees = _trees(_part(self.world, number) if self.many else self.world, with_replay=self.keeps_replay)
            counts = {"environment_steps": seed.steps, "environment_episodes": seed.episodes}
            state = {
                "counts": {"counts": counts},
                "learner_steps": seed.learner_steps,
                "next_evaluation": seed.next_evaluation,
                "next_row": seed.next_row,
                "logged": seed.logged,
                "standing": self._standing(number),
                "wall_time_s": seed.store.wall_time_s,
            }
            seed.store.checkpoints.save(seed.steps, trees, state, None)

    def _evaluate(self, episodes: int, interrupt: Interrupt) -> list[Score] | None:
        """Returns the scores of the current parameters; None if a signal interrupted the evaluation."""
        if episodes not in self.evaluations:
            policy = self.loop.agent.evaluation_policy
            evaluation = EvaluationLoop(policy, self.evaluated, episodes, self.experiment.evaluation.num_envs)
            many = jax.vmap if self.many else lambda function, **_: function
            keys = [
                (
                    row_keys(environment_seed(each.experiment.seed, evaluation=True), evaluation.num_envs),
                    each.experiment.key("evaluator"),
                )
                for each in self.seeds
            ]
            stacked = jax.tree.map(lambda *each: jnp.stack(each), *keys) if self.many else keys[0]
            start = compiling.jit(many(evaluation.init))(*stacked)
            advance = compiling.jit(many(evaluation.advance, in_axes=(0, 0, None)))
            self.evaluations[episodes] = evaluation, start, advance, _Pace()
        evaluation, scores, advance, pace = self.evaluations[episodes]
        scores = self._with_standings(scores)
        variables = self.loop.agent.core.variables
        params = (jax.vmap(variables) if self.many else variables)(self.world.learning.state)[POLICY]
        if self.loop.spread:
            params = jax.device_put(params, self.loop.spread.devices[0])
        ended, since, told = 0, 0, False
        while (np.asarray(scores.finished) < evaluation.quota).any():
            if interrupt.requested:
                return None
            began = time.monotonic()
            scores, made = advance(params, scores, np.int32(pace.most))
            made = int(np.max(made))  # waits for the device
            pace.adapt(made, time.monotonic() - began)
            before, ended = ended, int(np.sum(scores.finished))
            since = since + made if ended == before else 0
            if since >= LONG and not told:
                self.report(endless(self.experiment))
                told = True
        returns, lengths = (np.asarray(x).reshape(len(self.seeds), *x.shape[-2:]) for x in scores[2:])
        made = np.arange(returns.shape[-1]) < evaluation.quota[:, None]  # [N, Q]
        return [Score(r[made].astype(np.float64), n[made]) for r, n in zip(returns, lengths, strict=True)]

    def _standing(self, number: int) -> list[list] | None:
        """Returns a seed's `standing` as JSON values, see `acting.policy.Policy`; None if the policy has none."""
        standing, carry = self.loop.agent.policy.standing, self.world.place.carry
        if standing is None:
            return None
        run = jax.device_get(carry.run)
        return carries.to_json(standing(_part(run, number) if self.many else run))

    def _with_standings(self, scores: Scores) -> Scores:
        """Returns the initial state of an evaluation, with the seeds' standings in its policies' state."""
        carry = scores.place.carry
        if self.loop.agent.policy.standing is None:
            return scores
        each = [_part(carry.run, i) if self.many else carry.run for i in range(len(self.seeds))]
        runs = [carries.of_each(self._standing(i), run) for i, run in enumerate(each)]
        run = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs) if self.many else runs[0]
        return scores._replace(place=scores.place._replace(carry=carry._replace(run=run)))


def _trees(world: World, *, with_replay: bool) -> dict[str, Any]:
    """Returns the trees of a world's checkpoint; the learner's state has the name under which evaluations read it."""
    rest = world._replace(learning=world.learning._replace(state=()), replay=())
    trees = {"learner": world.learning.state, "world": rest}
    return {**trees, _REPLAY: world.replay} if with_replay and world.replay else trees


def _world(trees: Mapping[str, Any]) -> World:
    """Returns the world of a checkpoint's trees; its replay is `()` if there is none."""
    rest = trees["world"]
    world = rest._replace(learning=rest.learning._replace(state=trees["learner"]), replay=trees.get(_REPLAY, ()))
    return jax.tree.map(_copied, world)


def _copied(leaf: Any) -> Array:
    """Returns a copy that JAX owns: an array that shares NumPy's memory must not be donated."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.array(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
    return jnp.array(leaf)
