"""Runs compiled on one device and on four of the host's, and says how the two compare; run as a script."""

import json
import sys
from pathlib import Path

import jax
import numpy as np
from test_compiled import dqn, experiment, learned, ppo, r2d2

from acme_ext import builders, launch

STEPS = {"ppo": 200, "r2d2": 120, "dqn": 80}


def compare(kind: str, folder: Path) -> dict:
    builder = {"ppo": ppo(), "r2d2": r2d2(builders.R2D2()), "dqn": dqn(prioritized=True)}[kind]
    steps, seeds = STEPS[kind], 2 if kind == "dqn" else 1
    one, four = (experiment(folder / f"{kind}{n}", builder, steps, num_envs=8, num_devices=n, seed=3) for n in (1, 4))
    (*_, alone), (*_, spread) = (launch.run(each, launch.Compiled(seeds=seeds), quiet=True) for each in (one, four))
    if seeds > 1:
        one, four = (
            experiment(result.run_dir, builder, steps, num_envs=8, num_devices=n, seed=4)
            for n, result in ((1, alone), (4, spread))
        )
    pairs = zip(jax.tree.leaves(learned(one)), jax.tree.leaves(learned(four)), strict=True)
    return {
        "steps": [alone.learner_steps, spread.learner_steps],
        "difference": max(float(np.max(np.abs(np.subtract(a, b, dtype=np.float64)))) for a, b in pairs),
        "returns": [alone.score.returns.tolist(), spread.score.returns.tolist()],
    }


if __name__ == "__main__":
    print(json.dumps({"devices": len(jax.devices()), **compare(sys.argv[1], Path(sys.argv[2]))}))
