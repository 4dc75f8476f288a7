"""The DeepMind control suite, with each observation as one flat vector by default.

At the suite's time limit, episodes end with discount 1, a truncation. The few tasks that terminate end with discount 0.
"""

import warnings
from collections.abc import Collection, Mapping
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from acme_ext.envs.backend import Backend
from acme_ext.envs.single import SinglePrecision

with warnings.catch_warnings():
    # It looks for a way to render, and warns if there is no display; nothing is rendered here.
    warnings.filterwarnings("ignore", message=".*DISPLAY")
    from dm_control import suite


class Dmc(Backend):
    """`dmc:DOMAIN/TASK`."""

    def names(self) -> Collection[str]:
        return [f"{domain}/{task}" for domain, task in suite.ALL_TASKS]

    def options(self, name: str) -> Mapping[str, Any]:
        return {"flatten": True}

    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        domain, task = name.split("/")
        environment = suite.load(domain, task, task_kwargs={"random": seed})
        return FlatObservation(environment) if options.get("flatten", True) else environment


class FlatObservation(SinglePrecision):
    """Wraps an environment to concatenate its dictionary of observations to one float32 vector, in the spec's order."""

    def __init__(self, environment: dm_env.Environment):
        super().__init__(environment)
        self._slices = []
        start = 0
        stated: Any = environment.observation_spec()  # An OrderedDict.
        for key, spec in stated.items():
            stop = start + int(np.prod(spec.shape))
            self._slices.append((key, slice(start, stop)))
            start = stop
        self._observation_spec = specs.Array((start,), np.float32, "observation")

    def _observe(self, observation: Any) -> np.ndarray:
        flat = np.empty(self._observation_spec.shape, np.float32)
        for key, where in self._slices:
            flat[where] = np.ravel(observation[key])
        return flat
