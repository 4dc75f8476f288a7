"""An environment that gymnasium registers when this is imported: episodes of 10 steps of a millisecond.

It raises in its step of the number in LAB_WALK_RAISES_AT, which evaluations never reach, or when it is made (0), ends
its process with exit code 0 in the step in LAB_WALK_EXITS_AT, and stands still in the step in LAB_WALK_HANGS_AT, of
which a new file in the folder LAB_WALK_HANGS_IN tells. With LAB_WALK_SERVER set it starts a process of its own, as one
with a simulator does, and leaves it; with LAB_WALK_JAX it computes something with JAX.
"""

import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import gymnasium
import numpy as np


class LabWalk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, pause_s: float = 0.001):
        self._pause_s = pause_s
        self._length = self._taken = 0
        if os.environ.get("LAB_WALK_RAISES_AT") == "0":
            raise ArithmeticError("there is no arm")
        if "LAB_WALK_SERVER" in os.environ:
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
        if "LAB_WALK_JAX" in os.environ:
            import jax.numpy as jnp

            jnp.zeros(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._length = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        time.sleep(self._pause_s)
        self._length += 1
        self._taken += 1
        if self._taken == int(os.environ.get("LAB_WALK_RAISES_AT", 0)):
            raise ArithmeticError("the arm fell off")
        if self._taken == int(os.environ.get("LAB_WALK_EXITS_AT", 0)):
            os._exit(0)
        if self._taken == int(os.environ.get("LAB_WALK_HANGS_AT", 0)):
            tempfile.mkstemp(dir=os.environ["LAB_WALK_HANGS_IN"])
            time.sleep(1000)
        return self._observe(), float(action), self._length == 10, False, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.random(3, np.float32)


gymnasium.register("LabWalk-v0", LabWalk)
