"""What a run saves: its checkpoints, and the parameters of its best evaluation."""

import contextlib
import dataclasses
import math
import os
import pathlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from acme_ext.acting.variables import POLICY
from acme_ext.errors import NotFiniteError, RunError, UsageError
from acme_ext.launch.runs.schedule import Checkpoints
from acme_ext.learning.checkpoints import CheckpointStore, Restored
from acme_ext.utils.rundir import RunDirectory

_REPLAY = "replay"  # the folder of a checkpoint that holds the replay's contents


class SavesReplay(Protocol):
    """An object that writes a replay's contents to a new folder."""

    def checkpoint(self, folder: pathlib.Path) -> None: ...


class Contents(NamedTuple):
    """What a checkpoint holds."""

    trees: Mapping[str, Any]  # trees of arrays, by name
    state: Mapping[str, Any]  # plain JSON
    replay: SavesReplay | None = None  # None: there is none, or it is among the trees


@dataclasses.dataclass(slots=True)
class Counts:
    """What a run counts from its beginning, before and after any resume."""

    environment_steps: int = 0
    environment_episodes: int = 0
    learner_steps: int = 0

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> "Counts":
        """Returns the counts of a checkpoint's state, also of one that an earlier version saved."""
        counts = state.get("counts", {})
        counts = counts.get("counts", counts)
        return cls(**{"learner_steps": state.get("learner_steps", 0), **counts})


class RunCheckpoints:
    """A run's checkpoints of the learner, the state and the replay.

    Args:
        rundir: the run's directory.
        settings: when and what to save.
        report: called with messages for the user.
    """

    def __init__(self, rundir: RunDirectory, settings: Checkpoints, report: Callable[[str], None]):
        self._settings, self._report = settings, report
        self._store = CheckpointStore(rundir.checkpoints, settings.keep, report=report)
        self._saved_at = time.monotonic()
        self._replay_saved_at = -math.inf
        self._latest: pathlib.Path | None = None  # the latest checkpoint that this process has saved with a replay
        self._exact: int | None = None  # the steps of the newest checkpoint that a resumed run goes on from exactly

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        every_s = self._settings.every_s
        return every_s > 0 and time.monotonic() - self._saved_at >= every_s

    def save(self, steps: int, contents: Contents, *, last: bool = False) -> None:
        """Saves a checkpoint at step `steps` of the budget.

        Args:
            steps: of the budget.
            contents: what the checkpoint holds. The replay is saved only if the settings ask for it.
            last: whether the run ends here. If not, and if the replay was written less than `replay_every_s` seconds
                ago, hard links to the previous checkpoint's replay are made instead of writing it again; copies on
                a disk without hard links.
        """
        now, replay = time.monotonic(), contents.replay
        before = None if last or now - self._replay_saved_at >= self._settings.replay_every_s else self._latest

        def save_replay(folder: pathlib.Path) -> None:
            assert replay is not None
            if before is not None:
                shutil.copytree(before / _REPLAY, folder / _REPLAY, copy_function=_link)
            else:
                replay.checkpoint(folder / _REPLAY)

        with_replay = self._settings.replay and replay is not None
        if contents.state.get("exact"):
            self._exact = steps
        path = self._store.save(
            steps,
            contents.trees,
            {"state": contents.state},
            save_replay if with_replay else None,
            keep_also=self._exact,
        )
        self._latest = path if with_replay else None
        if before is None:
            self._replay_saved_at = now
        self._saved_at = time.monotonic()

    def restore(
        self,
        templates: Mapping[str, Any],
        steps: int | None = None,
        *,
        optional: Sequence[str] = (),
        exact: bool = False,
    ) -> Restored | None:
        """Returns the latest undamaged checkpoint, or the one at `steps`; None for a run that has none.

        With `steps`, the checkpoint's replay is not verified: the caller has already done that. `optional` has the
        names of templates whose trees a checkpoint may lack. With `exact`, it is the newest checkpoint that a resumed
        run goes on from exactly, see `Checkpoints.steps`; None, a run from the beginning, if none was due yet.

        Raises:
            UsageError: with `exact`, if such a checkpoint was due and there is none.
        """
        found = list(self._store.infos("state"))
        self._exact = next((at for at, state in found if state.get("exact")), None)
        if exact and found:
            if self._exact is None and found[0][0] >= self._settings.steps:
                raise UsageError(
                    f"this run is at step {found[0][0]:,} and has no checkpoint from which it would go on exactly: it "
                    "was begun without --checkpoint-steps. Leave out exact (--exact) to resume from the newest "
                    "checkpoint, or start anew (--fresh)."
                )
            if self._exact is None:
                self._report("this run was stopped before its first exact checkpoint: it begins anew.")
                return None
            return self._store.restore(templates, optional=optional, steps=self._exact)
        return self._store.restore(templates, optional=optional, extra=steps is None, steps=steps)

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Adds to the error for a loss that is not finite which checkpoint remains."""
        try:
            yield
        except NotFiniteError as error:
            steps = self._store.latest()
            stays = "It has no checkpoint yet." if steps is None else f"Its checkpoint of step {steps:,} stays."
            raise RunError(f"{error} {stays}") from error


def _link(source: str, target: str) -> None:
    """Makes a hard link to a file, or a copy if the disk has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def replay_folder(restored: Restored | None) -> pathlib.Path | None:
    """Returns the folder with a checkpoint's replay, or None if it has none."""
    if restored is None or not (restored.path / _REPLAY).is_dir():
        return None
    return restored.path / _REPLAY


class BestParams:
    """The parameters of a run's best evaluation, which are stored separately from its checkpoints.

    Args:
        rundir: the run's directory.
        report: called with a message if the stored parameters are damaged.
    """

    def __init__(self, rundir: RunDirectory, report: Callable[[str], None] = print):
        self._store = CheckpointStore(rundir.best, keep=1, report=report)
        self._lock = threading.Lock()
        self._mean: float | None = None  # None: not read yet

    @property
    def mean(self) -> float:
        """The mean return of the best evaluation; -inf before the first."""
        mean = self._mean
        if mean is None:
            try:
                restored = self._store.restore({})
            except RunError:  # damaged: the next evaluation becomes the best
                restored = None
            self._mean = mean = float(restored.info["best"]["mean"]) if restored else -math.inf
        return mean

    def offer(self, mean: float, steps: int, params: Callable[[], Any], statistics: list | None) -> None:
        """Stores an evaluation's parameters if its mean return is higher than all earlier ones.

        Args:
            mean: the evaluation's mean return.
            steps: steps of the budget.
            params: returns the policy's parameters.
            statistics: the policies' shared statistics, see `acting.policy.Policy`.
        """
        with self._lock:
            if mean > self.mean:
                self._store.save(steps, {POLICY: params()}, {"best": {"mean": mean, "standing": statistics}})
                self._mean = mean

    def restore(self, template: Any) -> Restored | None:
        """Returns the stored parameters as the tree `POLICY`, with `info["best"]`; None if there are none yet."""
        return self._store.restore({POLICY: template})
