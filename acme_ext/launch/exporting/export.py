"""Exports the policy of a run."""

import hashlib
import importlib.util
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tree
from jax import export as jax_export

import acme_ext
from acme_ext.data.format import field_names, spec_to_json
from acme_ext.envs.canonical import bounds_of
from acme_ext.errors import UsageError
from acme_ext.launch.exporting import policy as standalone
from acme_ext.launch.exporting.program import Program, trace
from acme_ext.launch.runs.evaluation import place_of
from acme_ext.launch.runs.trained import PolicyFunction, Run, load
from acme_ext.utils import files, install

_FILES = ("policy.json", "policy.npz", "policy.py", "policy.jaxexport", "policy.onnx")


class Traced(NamedTuple):
    """The evaluation policy of a run as a function of flat lists of arrays, for one environment (batch size 1)."""

    function: Any  # (*observation, *state, reward, first, key) -> [action, *state]; the key is two uint32
    arguments: list[jax.ShapeDtypeStruct]
    program: Program
    observations: int  # number of arrays of an observation
    initial: list[np.ndarray]  # the initial state


def trace_run(run: Run) -> Traced:
    """Returns the evaluation policy of a run, with the parameters as constants.

    Raises:
        UsageError: the policy has an operation that can't be exported.
    """
    loaded = run.loaded
    function: PolicyFunction = run.policy.functions[False]
    params = loaded.params
    fields = tree.flatten(loaded.spec.observations)
    initial, structure = jax.tree.flatten(jax.device_get(function.init(1)))
    count = len(fields)

    def act(*arrays: Any) -> list[Any]:
        observation = tree.unflatten_as(loaded.spec.observations, arrays[:count])
        state = jax.tree.unflatten(structure, arrays[count : count + len(initial)])
        reward, first, key = arrays[-3:]
        keys = jax.random.split(jax.random.wrap_key_data(key), 1)
        action, after = function(params, keys, observation, state, reward, first)
        return [action, *jax.tree.leaves(after)]

    def struct(shape: Any, dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((1, *shape), dtype)

    arguments = [
        *(struct(spec.shape, spec.dtype) for spec in fields),
        *(struct(leaf.shape[1:], leaf.dtype) for leaf in initial),
        *(struct((), jnp.float32), struct((), jnp.bool_), jax.ShapeDtypeStruct((2,), jnp.uint32)),
    ]
    try:
        program = trace(act, *arguments)
    except UsageError as error:
        builder = loaded.experiment.builder
        if builder.unexportable:
            raise UsageError(f"{builder.name} can't be exported, because {builder.unexportable}.") from error
        raise
    return Traced(act, arguments, program, count, [np.asarray(leaf) for leaf in initial])


def export_run(path: str | os.PathLike[str], out: str | os.PathLike[str], *, onnx: bool = False) -> Path:
    """Writes the evaluation policy of a run's latest good checkpoint to a folder, and returns it.

    Args:
        path: the run directory.
        out: the folder; an earlier export in it is overwritten.
        onnx: also writes an ONNX model, which needs the extra `onnx`.

    Raises:
        UsageError: see `launch.load`; the policy has an operation that can't be exported (the message names it); or the
            folder contains other files.
    """
    check_onnx(onnx)
    _check_folder(Path(out))  # before loading anything
    return export(load(path), out, onnx=onnx)


def check_onnx(onnx: bool) -> None:
    """Raises UsageError if `onnx` is true and the package onnx is not installed."""
    if onnx and importlib.util.find_spec("onnx") is None:
        raise UsageError(f"a model of ONNX needs onnx, not installed here: {install.command('onnx')}")


def export(run: Run, out: str | os.PathLike[str], *, onnx: bool = False) -> Path:
    """Writes the evaluation policy of a loaded run; see `export_run`."""
    out = Path(out)
    _check_folder(out)
    traced = trace_run(run)
    made: dict[str, bytes] = {}
    made["policy.npz"] = _arrays(run, traced)
    made["policy.py"] = Path(standalone.__file__).read_bytes()
    exported = jax_export.export(jax.jit(traced.function), platforms=("cpu", "cuda"))(*traced.arguments)
    made["policy.jaxexport"] = bytes(exported.serialize())
    if onnx:
        made["policy.onnx"] = _onnx(run, traced)
    made["policy.json"] = files.json_text(_described(run, traced, made["policy.npz"])).encode()
    files.make_writable_folder(out)
    if not onnx:
        (out / "policy.onnx").unlink(missing_ok=True)  # from an earlier export of another policy
    for name, content in made.items():
        with files.replacing(out / name) as temporary:
            temporary.write_bytes(content)
    return out


def _check_folder(out: Path) -> None:
    """Raises UsageError if a folder contains files that are not from an export."""
    if out.is_dir() and (
        others := sorted(p.name for p in files.entries(out) if p.name not in (*_FILES, "__pycache__"))
    ):
        raise UsageError(f"{out} holds something else, such as {others[0]}: choose another folder.")


def _onnx(run: Run, traced: Traced) -> bytes:
    from acme_ext.launch.exporting.onnx import convert

    states = [f"state/{i}" for i in range(len(traced.initial))]
    inputs = [*field_names(run.loaded.spec.observations), *states, "reward", "first", "key"]
    outputs = ["action", *(f"next_{name}" for name in states)]
    return convert(traced.program, traced.arguments, inputs, outputs, bounds_of(run.loaded.actions))


def _arrays(run: Run, traced: Traced) -> bytes:
    arrays = {f"c{name}": value for name, value in traced.program.constants.items()}
    arrays |= {f"s{i}": leaf for i, leaf in enumerate(traced.initial)}
    if (bounds := bounds_of(run.loaded.actions)) is not None:
        arrays["minimum"], arrays["maximum"] = bounds
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _described(run: Run, traced: Traced, arrays: bytes) -> dict[str, Any]:
    program, count, states = traced.program, traced.observations, len(traced.initial)
    rundir, _ = place_of(run.path)
    config = rundir.read_config()
    used = {name for equation in program.equations for name in equation.inputs} | set(program.outputs)
    specs = spec_to_json(run.loaded.spec)
    return {
        "format": 1,
        "about": {
            **{name: config[name] for name in ("agent", "environment", "environment_options", "seed")},
            "steps": run.loaded.steps,
            "version": acme_ext.__version__,
            "sha256": {
                "policy.npz": hashlib.sha256(arrays).hexdigest(),
                "config.json": files.sha256(rundir.config),
            },
        },
        "observations": _shapes(specs["observations"]),
        "actions": {"shape": list(run.loaded.actions.shape), "dtype": np.dtype(run.loaded.actions.dtype).name},
        "reads_reward": program.inputs[-3] in used,
        "inputs": {
            "observation": program.inputs[:count],
            "state": program.inputs[count : count + states],
            "reward": program.inputs[-3],
            "first": program.inputs[-2],
        },
        "outputs": {"action": program.outputs[0], "state": program.outputs[1:]},
        "equations": [
            {"op": each.op, "in": each.inputs, "out": each.outputs, **each.attributes} for each in program.equations
        ],
    }


def _shapes(described: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON of a spec without its bounds."""
    if "fields" in described:
        return {"fields": {name: _shapes(value) for name, value in described["fields"].items()}}
    if "parts" in described:
        return {"parts": [_shapes(value) for value in described["parts"]]}
    return {name: value for name, value in described.items() if name not in ("minimum", "maximum")}
