"""A study: trials of an agent's settings, each of which is a run with its own process and directory.

    study.json            what is tuned, and the search space
    journal.log           the trials, in Optuna's format; several processes may write to it
    trials/0007/          the run of trial 7; its output is in a file next to it
    retrained/            runs of the best settings on other seeds, and their results
    results.json, history.png, importance.png

A process that works on a trial holds a lock on it, and so does the trial's own process. A trial that was started and is
not locked is resumed from its run directory.
"""

import collections
import contextlib
import dataclasses
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.storages.journal import JournalFileBackend

from acme_ext.commands.tuning import spaces
from acme_ext.config.comparison import differences
from acme_ext.errors import RunError, UsageError
from acme_ext.launch.hosts.interrupt import Interrupt
from acme_ext.launch.hosts.ray import commands
from acme_ext.utils import files, loggers
from acme_ext.utils.rundir import RunDirectory

_POLL_S = 0.5  # between checks of the runs
_RANDOM_TRIALS = 10  # trials with random settings, before the sampler fits a model
_COMPARED_TRIALS = 5  # trials that must have finished before one can be pruned
_LOSSES = 5  # a run fails after it has lost this many hosts
_PAUSE_S = 1.0  # delay before a run restarts after losing its first host; it doubles with each loss
_WARM_UP = 1 / 3  # fraction of a trial's evaluations before it can be pruned

# Run by `python -c`. The first argument is the id of its parent process, with which it ends.
CHILD = """
import signal, sys
from acme_ext.commands import cli
from acme_ext.utils import system
if not system.signal_at_parents_end(int(sys.argv[1]), signal.SIGTERM):
    sys.exit(1)
sys.exit(cli.main(sys.argv[2:]))
"""

State = optuna.trial.TrialState


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The settings of a study, whose runs differ only in the fields of `space` and in their seeds."""

    agent: str
    environment: str
    steps: int  # budget of each run
    every: int  # steps between the evaluations of a run; 0: only at the end
    num_envs: int
    eval_episodes: int | None  # episodes of the final evaluation
    settings: Mapping[str, str]  # fields that all runs share
    environment_options: Mapping[str, str]
    space: spaces.Space
    seed: int  # seed of the first trial; each next trial's seed is one more

    def describe(self) -> dict[str, Any]:
        """Returns these settings as plain JSON, which a resumed study must match."""
        described = dataclasses.asdict(self)
        return {**described, "space": {name: dimension.text for name, dimension in self.space.items()}}

    def command(self, run_dir: Path, seed: int, chosen: Mapping[str, str]) -> list[str]:
        """Returns the arguments of `acme-ext` for a run with chosen settings."""
        options = {"--steps": self.steps, "--seed": seed, "--num-envs": self.num_envs, "--eval-every": self.every}
        if self.eval_episodes is not None:
            options["--eval-episodes"] = self.eval_episodes
        environment = self.environment
        if environment.startswith("data:"):  # a run on another host may have another working directory
            environment = f"data:{os.path.abspath(files.expanded(environment.removeprefix('data:')))}"
        command = ["train", self.agent, environment, "--run-dir", str(run_dir.absolute()), "--quiet"]
        command += [text for name, value in options.items() for text in (name, str(value))]
        for name, value in {**self.settings, **chosen}.items():
            command += ["--set", f"{name}={value}"]
        for name, value in self.environment_options.items():
            command += ["--env-set", f"{name}={value}"]
        return command


class Outcome(NamedTuple):
    """The result of a run that retrains settings."""

    score: float | None  # the mean return of its final evaluation; None if the run failed
    reason: str | None = None  # why the run failed


class Retrained(NamedTuple):
    """Settings that were trained on several seeds, other than the seeds of the search."""

    name: str
    settings: Mapping[str, str]
    outcomes: Mapping[int, Outcome]  # by seed

    @property
    def scores(self) -> np.ndarray:
        """The returns of the seeds that did not fail."""
        return np.array([o.score for o in self.outcomes.values() if o.score is not None])

    @property
    def failed(self) -> int:
        """The number of seeds that failed."""
        return len(self.outcomes) - len(self.scores)


def ranked(retrained: Iterable[Retrained]) -> list[Retrained]:
    """Returns settings with the best mean first; those of which a seed failed come last.

    The mean of the other seeds would say that such settings are better than they are.
    """
    return sorted(retrained, key=lambda each: (each.failed, -each.scores.mean() if len(each.scores) else np.inf))


class _Work:
    """A run that this process supervises, on this machine or on another host of a cluster."""

    def __init__(
        self, run_dir: Path, command: list[str], lock: int, trial: Any = None, cluster: commands.Cluster | None = None
    ):
        self.run_dir, self.trial, self.lock = run_dir, trial, lock
        self.pruned = False
        self.log = run_dir.with_name(f"{run_dir.name}.log")
        self.process: subprocess.Popen | commands.OnHost
        if cluster is not None:
            self.process = cluster.start(CHILD, command, run_dir)
            return
        with files.disk_errors(self.log), open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", CHILD, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that Ctrl-C in a terminal reaches the run only once
                pass_fds=(lock,),
            )

    @property
    def lost(self) -> bool:
        """Whether it ended because its host was lost."""
        return isinstance(self.process, commands.OnHost) and self.process.lost

    @property
    def score(self) -> float:
        """The mean return of the run's final evaluation."""
        return float(RunDirectory.open(self.run_dir).read_evaluation()["episode_return_mean"])

    @property
    def reason(self) -> str:
        """Why the run failed: its last line of output, or the signal that ended it."""
        log = self.log.read_text(encoding="utf-8", errors="replace") if self.log.is_file() else ""
        lines = [line for line in log.splitlines() if line.strip()]
        last = lines[-1].strip() if lines else "it printed nothing"
        code = self.process.returncode
        return f"signal {-code} ended it" if code is not None and code < 0 else last.removeprefix("acme-ext: ")

    def evaluations(self, step_key: str) -> Iterator[tuple[int, float]]:
        """Yields the step and the mean return of each evaluation so far."""
        path = self.run_dir / "logs" / "evaluator.csv"
        if path.is_file() and (columns := loggers.read_csv(path)):
            yield from zip(columns[step_key].tolist(), columns["episode_return_mean"].tolist(), strict=True)


class Study:
    """A study, with its directory.

    Args:
        path: the directory; it is created if it doesn't exist.
        tuned: the study's settings.
        report: called with a line of text for each event.
        cluster: the Ray cluster that runs the trials; None to run them on this machine.

    Raises:
        UsageError: the directory holds another study (the message names the fields that differ) or other files.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        tuned: Tuned,
        report: Callable[[str], None] = print,
        cluster: commands.Cluster | None = None,
    ):
        self.path, self.tuned, self._report, self._cluster = Path(path), tuned, report, cluster
        self._losses: collections.Counter[Path] = collections.Counter()  # how often each run has lost its host
        self._paused: dict[Path, float] = {}  # when each run may restart after such a loss
        self._step_key = "learner_steps" if tuned.environment.startswith("data:") else "environment_steps"
        description = self.path / "study.json"
        described = json.loads(files.json_text(tuned.describe()))
        entries = files.entries(self.path) if self.path.is_dir() else []
        # The description is looked for last: another process that begins the study writes it before all but the lock.
        if any(entry.name != "lock" for entry in entries) and not description.is_file():
            raise UsageError(f"{self.path} is neither empty nor a study: choose another directory (--study).")
        files.make_writable_folder(self.path)
        with self._locked("lock"):
            if description.is_file():
                there = files.read_json(description)
                if found := differences(there, described):
                    fields = "; ".join(f"{name} is {a!r} there and {b!r} here" for name, (a, b) in found.items())
                    raise UsageError(f"{self.path} holds another study: {fields}; choose another directory (--study).")
            else:
                files.write_json(description, described)
            for folder in ("trials", "retrained"):
                (self.path / folder).mkdir(exist_ok=True)
            optuna.logging.set_verbosity(optuna.logging.ERROR)
            journal = self.path / "journal.log"
            lock: Any = _JournalLock(journal)
            backend = JournalFileBackend(str(journal), lock)
            self.optuna = optuna.create_study(
                storage=optuna.storages.JournalStorage(backend),
                study_name="acme-ext",
                direction="maximize",
                load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(
                    n_startup_trials=_COMPARED_TRIALS,
                    n_warmup_steps=round(_WARM_UP * tuned.steps / tuned.every) if tuned.every else 0,
                ),
            )

    @property
    def trials(self) -> list[Any]:
        """All trials, as Optuna's frozen trials."""
        return self.optuna.get_trials(deepcopy=False)

    @property
    def best(self) -> list[Any]:
        """The completed trials, the best first."""
        complete = [trial for trial in self.trials if trial.state == State.COMPLETE and trial.value is not None]
        return sorted(complete, key=lambda trial: -trial.value)

    def settings_of(self, trial: Any) -> dict[str, str]:
        """Returns the fields of a trial, in the form for `--set`."""
        return {name: self.tuned.space[name].written(value) for name, value in trial.params.items()}

    def search(self, trials: int, jobs: int, interrupt: Interrupt) -> None:
        """Runs trials until `trials` of them have ended, including those of other processes, or a signal arrives."""

        def next_work() -> _Work | None:
            return self._next_trial(trials)

        self._work(next_work, self._tell, lambda: self._ended >= trials, jobs, interrupt)

    def retrain(self, best: int, seeds: int, jobs: int, beside: list[str], interrupt: Interrupt) -> list[Retrained]:
        """Trains the best settings on seeds 0, 1, ..., and returns the results, in the order of `ranked`.

        Args:
            best: number of settings.
            seeds: number of seeds for each.
            jobs: runs in parallel.
            beside: settings to compare with: `defaults`, the agent's defaults, and `middle`, the middle of the space.
            interrupt: notes signals that ask to stop.
        """
        wanted: dict[str, dict[str, str]] = {f"trial {t.number}": self.settings_of(t) for t in self.best[:best]}
        others: dict[str, dict[str, str]] = {"defaults": {}, "middle": spaces.middle(self.tuned.space)}
        wanted |= {name: others[name] for name in beside}
        runs = [(name, seed) for seed in range(seeds) for name in wanted]

        def next_work() -> _Work | None:
            for name, seed in runs:
                path = self._retrained(name, seed)
                if not self._outcome(path).is_file() and (lock := self._claim(path)) is not None:
                    if not self._outcome(path).is_file():  # it may have ended before its lock was released
                        command = self.tuned.command(path, seed, wanted[name])
                        return _Work(path, command, lock, cluster=self._cluster)
                    os.close(lock)
            return None

        def finish(work: _Work) -> None:
            outcome = Outcome(work.score) if work.process.returncode == 0 else Outcome(None, work.reason)
            files.write_json(self._outcome(work.run_dir), outcome._asdict())
            said = f"return {outcome.score:.4g}" if outcome.score is not None else f"failed: {outcome.reason}"
            self._report(f"retrained {work.run_dir.name}: {said}")

        def finished() -> bool:
            return all(self._outcome(self._retrained(*run)).is_file() for run in runs)

        self._work(next_work, finish, finished, jobs, interrupt)
        found = []
        for name, chosen in wanted.items():
            outcomes = {seed: self._outcome(self._retrained(name, seed)) for seed in range(seeds)}
            read = {seed: Outcome(**files.read_json(path)) for seed, path in outcomes.items() if path.is_file()}
            found.append(Retrained(name, chosen, read))
        return ranked(found)

    @property
    def _ended(self) -> int:
        return sum(trial.state.is_finished() for trial in self.trials)

    def _retrained(self, name: str, seed: int) -> Path:
        return self.path / "retrained" / f"{name.replace(' ', '-')}-s{seed}"

    def _outcome(self, run_dir: Path) -> Path:
        return run_dir.with_name(f"{run_dir.name}.json")

    def _work(
        self,
        next_work: Callable[[], _Work | None],
        finish: Callable[[_Work], None],
        finished: Callable[[], bool],
        jobs: int,
        interrupt: Interrupt,
    ) -> None:
        """Keeps `jobs` runs going until all work is finished, by this or other processes."""
        going: list[_Work] = []
        while not interrupt.requested and (going or not finished()):
            while len(going) < jobs and (work := next_work()) is not None:
                going.append(work)
            time.sleep(_POLL_S)
            for work in list(going):
                ended = work.process.poll() is not None  # checked before `_look`, which then sees its complete output
                if work.trial is not None:
                    self._look(work)
                if ended and not interrupt.requested:
                    self._losses[work.run_dir] += work.lost
                    if work.lost and self._losses[work.run_dir] < _LOSSES:
                        pause_s = _PAUSE_S * 2 ** (self._losses[work.run_dir] - 1)
                        self._paused[work.run_dir] = time.monotonic() + pause_s
                        self._report(f"{work.run_dir.name}: its host was lost; it is resumed on another")
                    else:
                        finish(work)
                    os.close(work.lock)
                    going.remove(work)
        for work in going:
            work.process.send_signal(signal.SIGTERM)
        for work in going:
            work.process.wait()
            os.close(work.lock)

    def _next_trial(self, trials: int) -> _Work | None:
        """Returns a trial that no process works on: a started one if there is one, or else a new one; None if no more
        trials are needed.
        """
        with self._locked("lock"):
            for frozen in self.trials:
                if frozen.state == State.RUNNING and (lock := self._claim(self._trial(frozen.number))) is not None:
                    # It may have ended before its lock was released.
                    if self.trials[frozen.number].state == State.RUNNING:
                        self._report(f"trial {frozen.number} is resumed")
                        return self._begin(optuna.trial.Trial(self.optuna, frozen._trial_id), lock)
                    os.close(lock)
            if sum(trial.state != State.WAITING for trial in self.trials) >= trials:
                return None
            # Each trial has its own seed, so that the processes of a study don't sample the same settings.
            seed = np.random.SeedSequence((self.tuned.seed, len(self.trials))).generate_state(1)[0].item()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                self.optuna.sampler = optuna.samplers.TPESampler(
                    seed=seed, n_startup_trials=_RANDOM_TRIALS, multivariate=True, constant_liar=True
                )
            trial = self.optuna.ask()
            lock = self._claim(self._trial(trial.number))
            assert lock is not None
            return self._begin(trial, lock)

    def _begin(self, trial: Any, lock: int) -> _Work:
        chosen = spaces.draw(self.tuned.space, trial)
        self._report(f"trial {trial.number}  {say(chosen)}")
        run_dir = self._trial(trial.number)
        command = self.tuned.command(run_dir, self.tuned.seed + trial.number, chosen)
        return _Work(run_dir, command, lock, trial, self._cluster)

    def _look(self, work: _Work) -> None:
        """Reports a trial's new evaluations to Optuna, and stops the trial if it should be pruned."""
        every, code = self.tuned.every, work.process.returncode
        # A run may finish before it receives the signal that prunes it.
        if not every or (work.pruned and code != 0):
            return
        known = self.trials[work.trial.number].intermediate_values
        for step, value in work.evaluations(self._step_key):
            # Use the number of the evaluation, because the exact steps differ between runs.
            index = round(step / every)
            if index not in known and np.isfinite(value):
                work.trial.report(value, index)
                if code is None and step < self.tuned.steps and work.trial.should_prune():
                    work.pruned = True
                    self._report(f"trial {work.trial.number}  pruned at step {step:,}, return {value:.4g}")
                    work.process.send_signal(signal.SIGTERM)
                    return

    def _tell(self, work: _Work) -> None:
        """Reports a trial's result to Optuna."""
        code, number = work.process.returncode, work.trial.number
        if code == 0:
            score = work.score
            self.optuna.tell(work.trial, score)
            self._report(f"trial {number}  return {score:.4g}")
        elif work.pruned:
            self.optuna.tell(work.trial, state=State.PRUNED)
        else:
            # If a run fails by itself, for example because its loss was not finite, its settings are bad, and the
            # sampler should know that.
            work.trial.set_user_attr("reason", work.reason)
            self.optuna.tell(work.trial, state=State.PRUNED if code == 1 else State.FAIL)
            self._report(f"trial {number}  failed: {work.reason}")

    def _trial(self, number: int) -> Path:
        return self.path / "trials" / f"{number:04d}"

    def _claim(self, run_dir: Path) -> int | None:
        """Takes a run's lock and returns its descriptor; None if another process has it, or the run is paused."""
        if time.monotonic() < self._paused.get(run_dir, 0.0):
            return None
        path = run_dir.with_name(f"{run_dir.name}.lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            raise RunError(f"{path} can't be locked: {error.strerror}; choose another disk.") from error
        return descriptor

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Waits for a lock of the study, and holds it."""
        descriptor = os.open(self.path / name, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


class _JournalLock:
    """The lock with which Optuna appends to its journal; it ends with its process, however that ends.

    Whoever takes it removes the incomplete last line that a killed process may have left.
    """

    def __init__(self, journal: Path):
        self._journal, self._descriptor = journal, -1

    def acquire(self) -> bool:
        self._descriptor = os.open(self._journal.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        written = self._journal.read_bytes()
        if (whole := written.rfind(b"\n") + 1) < len(written):
            os.truncate(self._journal, whole)
        return True

    def release(self) -> None:
        os.close(self._descriptor)


def say(chosen: Mapping[str, str]) -> str:
    """Returns settings as one line of text."""
    return ", ".join(f"{name}={value}" for name, value in chosen.items()) or "nothing is set"
