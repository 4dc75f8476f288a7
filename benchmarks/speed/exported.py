"""Compares a run's exported policies with the compiled one: their actions, and the microseconds per action.

    python -m benchmarks.speed.exported RUN [--actions 1000]

The compiled policy acts in the run's environment. The exported policies (NumPy, `jax.export` and ONNX) get the same
observations and states, one at a time. Each policy draws its own random numbers, so random actions differ.
"""

import argparse
import importlib.util
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import tree
from jax import export as jax_export

from acme_ext import envs, launch
from acme_ext.envs.canonical import ActionScale, bounds_of
from acme_ext.launch.exporting.export import export

_DROPPED = 20  # first calls, which aren't timed: compilation and warm-up


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 if an exported policy differs from the run's by more than 1e-5."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", help="a run directory")
    parser.add_argument("--actions", type=int, default=1_000, metavar="N", help="number of timed actions (%(default)s)")
    options = parser.parse_args(arguments)
    rows = measure(options.run, options.actions)
    print(f"{'policy':<10} {'us an action':>12} {'greatest difference':>20}")
    for name, (seconds, difference) in rows.items():
        print(f"{name:<10} {1e6 * seconds:>12.1f} {difference:>20.2g}")
    return int(max(difference for _, difference in rows.values()) > 1e-5)


def measure(path: str, actions: int) -> dict[str, tuple[float, float]]:
    """Returns, for each policy, the median seconds per action, and the maximum difference of actions and states."""
    run = launch.load(path)
    experiment = run.loaded.experiment
    environment = envs.make_single(experiment.environment, seed=experiment.seed, evaluation=True, **experiment.options)
    taken: dict[str, list[float]] = {}
    differences: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        others = _others(export(run, folder, onnx=importlib.util.find_spec("onnxruntime") is not None), run)
        timestep, state = environment.reset(), None
        for _ in range(_DROPPED + actions):
            if timestep.last():
                timestep, state = environment.reset(), None
            reward = float(timestep.reward or 0.0)
            given = run.policy._begun(False, 1) if state is None else state
            start = time.perf_counter()
            action, after = run.policy(timestep.observation, state, reward=reward)
            jax.block_until_ready(after)
            taken.setdefault("compiled", []).append(time.perf_counter() - start)
            wanted = [np.asarray(action), *map(np.asarray, jax.tree.leaves(after))]
            leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(given)]
            for name, act in others.items():
                start = time.perf_counter()
                made = act(timestep.observation, leaves, reward, state is None)
                taken.setdefault(name, []).append(time.perf_counter() - start)
                found = max(
                    float(np.abs(np.asarray(a, np.float64).reshape(-1) - np.asarray(b, np.float64).reshape(-1)).max())
                    for a, b in zip(made, wanted, strict=True)
                )
                differences[name] = max(differences.get(name, 0.0), found)
            timestep, state = environment.step(action), after
    environment.close()
    return {name: (float(np.median(each[_DROPPED:])), differences.get(name, 0.0)) for name, each in taken.items()}


def _others(folder: pathlib.Path, run: Any) -> dict[str, Callable[..., list[Any]]]:
    """Returns the exported policies, `(observation, state leaves, reward, first) -> [action, *state leaves]`."""
    spec = importlib.util.spec_from_file_location("exported_policy", folder / "policy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    policy = module.load(str(folder))
    bounds, fields = bounds_of(run.loaded.actions), run.loaded.spec.observations
    compiled = jax.jit(jax_export.deserialize(bytearray((folder / "policy.jaxexport").read_bytes())).call)
    key = np.zeros(2, np.uint32)

    def arrays(observation: Any) -> list[np.ndarray]:
        given = tree.map_structure_up_to(fields, lambda s, x: np.asarray(x, s.dtype)[None], fields, observation)
        return tree.flatten(given)

    def by_numpy(observation: Any, state: list[Any], reward: float, first: bool) -> list[Any]:
        action, after = policy.step(observation, tuple(state), reward=reward, first=first)
        return [action, *after]

    def by_jax(observation: Any, state: list[Any], reward: float, first: bool) -> list[Any]:
        made = compiled(*arrays(observation), *state, np.float32([reward]), np.array([first]), key)
        action, *after = map(np.asarray, made)
        return [action if bounds is None else ActionScale(*bounds)(action), *after]

    found: dict[str, Callable[..., list[Any]]] = {"numpy": by_numpy, "jax.export": by_jax}
    if (folder / "policy.onnx").is_file():
        import onnxruntime

        session = onnxruntime.InferenceSession(str(folder / "policy.onnx"), providers=["CPUExecutionProvider"])
        reads = {each.name for each in session.get_inputs()}
        names = [each.name for each in session.get_inputs() if each.name.startswith("observation")]
        everything = ["/".join(["observation", *map(str, path)]) for path, _ in tree.flatten_with_path(fields)]
        assert set(names) <= set(everything)

        def by_onnx(observation: Any, state: list[Any], reward: float, first: bool) -> list[Any]:
            given = dict(zip(everything, arrays(observation), strict=True))
            given |= {f"state/{i}": leaf for i, leaf in enumerate(state)}
            given |= {"reward": np.float32([reward]), "first": np.array([first])}
            return session.run(None, {name: value for name, value in given.items() if name in reads})

        found["onnx"] = by_onnx
    return found


if __name__ == "__main__":
    sys.exit(main())
