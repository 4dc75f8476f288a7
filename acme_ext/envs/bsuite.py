"""The experiments of bsuite, without its logging.

As in bsuite, every end of an episode is a termination, even at a time limit (mountain car, cart-pole).
"""

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import bsuite
import dm_env
import numpy as np
from bsuite import sweep
from bsuite.bsuite import EXPERIMENT_NAME_TO_ENVIRONMENT

from acme_ext.envs.backend import Backend
from acme_ext.errors import UsageError


class Bsuite(Backend):
    """`bsuite:ID`, an experiment and its setting, as in `catch/0`."""

    def names(self) -> Collection[str]:
        return list(sweep.SETTINGS)

    def options(self, name: str) -> Mapping[str, Any]:
        return {}

    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        experiment = name.split("/")[0]
        settings = dict(sweep.SETTINGS[name])
        # The setting `mapping_seed` belongs to the experiment; the run's seed is passed as `seed`, if there is one.
        seeded = "seed" in inspect.signature(EXPERIMENT_NAME_TO_ENVIRONMENT[experiment]).parameters
        if seeded:
            settings["seed"] = seed
        try:
            environment = bsuite.load(experiment, settings)
        except OSError as error:  # The MNIST experiments fetch their data.
            raise UsageError(f"bsuite can't load the data of {name!r}: {error}.") from error
        if not seeded and isinstance(rng := getattr(environment, "_rng", None), np.random.RandomState):
            rng.seed(seed)  # Stochastic deep sea doesn't let its generator be seeded in another way.
        return environment
