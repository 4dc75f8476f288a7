"""A compiled run that is killed at its tenth call: between two calls, inside one, or while a checkpoint is written."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from test_compiled import dqn, experiment

from acme_ext import launch
from acme_ext.launch import Checkpoints, runner
from acme_ext.launch.engines.compiled import engine
from acme_ext.learning import checkpoints

if __name__ == "__main__":
    folder, when = Path(sys.argv[1]), sys.argv[2]
    calls = 0

    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    class Killed(engine.CompiledEngine):
        def advance(self) -> None:
            global calls
            calls += 1
            if calls == 10 and when == "inside":
                # The call's work is done, and the host knows nothing of it.
                self._count = die
            if calls == 10 and when == "saving":
                checkpoints._write_manifest = die
            super().advance()
            if calls == 10 and when == "between":
                die()

    engine.CompiledEngine = Killed
    runner._TICK_S = 0.0
    often = Checkpoints(every_s=1e-6)  # after each call
    launch.run(experiment(folder, dqn(prioritized=True), 160, checkpoints=often), launch.Compiled(), quiet=True)
