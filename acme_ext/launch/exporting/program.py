"""Converts a traced function to a flat list of simple operations, and evaluates the parts with constant inputs."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from acme_ext.errors import UsageError

_LONGEST_LOOP = 16  # most steps of a loop that is unrolled


class Equation(NamedTuple):
    """One operation; `OPS` in `exporting.policy` has all of them."""

    op: str
    inputs: list[int]
    outputs: list[int]
    attributes: dict[str, Any]  # JSON types


class Program(NamedTuple):
    """A list of operations on numbered values."""

    inputs: list[int]
    outputs: list[int]
    constants: dict[int, np.ndarray]
    equations: list[Equation]


class _Value(int):
    """The number of a value that is computed when the program runs."""


class _Key:
    """A placeholder for random keys: the interpreter of the program uses its own random generator."""


_KEY = _Key()


def trace(function: Callable[..., Sequence[Any]], *arguments: jax.ShapeDtypeStruct) -> Program:
    """Returns a function of arrays as a program; arrays that the function closes over become constants.

    Args:
        function: `(*arrays) -> list of arrays`; it may create random keys, but not take or return them.
        arguments: the shapes and dtypes of the arrays.

    Raises:
        UsageError: the function uses a primitive without an operation; the message names it.
    """
    closed = jax.make_jaxpr(function)(*arguments)
    writer = _Writer()
    inputs = [writer.new() for _ in arguments]
    found = writer.run(closed.jaxpr, closed.consts, list(inputs))
    outputs = [writer.number(value) for value in found]
    used, kept = set(outputs), []
    for equation in reversed(writer.equations):
        if used & set(equation.outputs):
            used |= set(equation.inputs)
            kept.append(equation)
    constants = {name: value for name, value in writer.constants.items() if name in used}
    return Program([int(name) for name in inputs], outputs, constants, kept[::-1])


class _Writer:
    def __init__(self) -> None:
        self.count = 0
        self.constants: dict[int, np.ndarray] = {}
        self._numbers: dict[int, tuple[Any, int]] = {}  # id of a constant -> itself, to keep it alive, and its number
        self.equations: list[Equation] = []

    def new(self) -> _Value:
        self.count += 1
        return _Value(self.count - 1)

    def number(self, value: Any) -> int:
        """Returns the number of a value; assigns one to a new constant."""
        if isinstance(value, _Key):
            raise UsageError("the policy computes with the bits of a random key, which can't be exported.")
        if isinstance(value, _Value):
            return int(value)
        if id(value) not in self._numbers:
            name = int(self.new())
            self.constants[name] = np.asarray(value)
            self._numbers[id(value)] = (value, name)
        return self._numbers[id(value)][1]

    def run(self, jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        known: dict[Any, Any] = {
            **dict(zip(jaxpr.constvars, constants, strict=True)),
            **dict(zip(jaxpr.invars, arguments, strict=True)),
        }

        def read(atom: Any) -> Any:
            return (
                np.asarray(atom.val, getattr(atom.aval, "dtype", None))
                if isinstance(atom, core.Literal)
                else known[atom]
            )

        for equation in jaxpr.eqns:
            results = self.apply(equation, [read(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def apply(self, equation: Any, values: list[Any]) -> list[Any]:
        name, params = equation.primitive.name, equation.params
        out = [var.aval for var in equation.outvars]
        keyed = any(isinstance(value, _Key) for value in values) or name in ("random_seed", "random_wrap")
        if name in ("pjit", "jit") and params["name"] == "_uniform" and keyed and out[0].dtype == jnp.float32:
            return [self.write("random_uniform", values[1:], 1, shape=list(out[0].shape))]
        if name == "scan":
            return self.unrolled(params, values)
        if (called := _called(equation)) is not None:
            return self.run(*called, values)
        if name == "cond" and not isinstance(values[0], _Value | _Key):  # a choice by the platform, for example
            branch = params["branches"][int(values[0])]
            return self.run(branch.jaxpr, branch.consts, values[1:])
        if keyed:
            if name == "random_bits":
                return [self.write(name, [], 1, shape=list(out[0].shape), width=params["bit_width"])]
            return [_KEY] * len(out)
        if not any(isinstance(value, _Value) for value in values):
            bound = equation.primitive.bind(*map(jnp.asarray, values), **params)
            return [np.asarray(value) for value in (bound if equation.primitive.multiple_results else [bound])]
        if name in ("stop_gradient", "copy", "copy_p", "optimization_barrier"):
            return values
        written = _written(name, params, [var.aval for var in equation.invars], out)
        made = self.write(written[0], values, len(out), **written[1])
        return [made] if len(out) == 1 else made

    def unrolled(self, params: Any, values: list[Any]) -> list[Any]:
        """Unrolls a loop of a few steps."""
        length, (consts, carried) = params["length"], _counts(params)
        if length > _LONGEST_LOOP:
            raise UsageError(f"the policy has a loop of {length} steps (scan), which can't be exported.")
        fixed, carry, over = values[:consts], values[consts : consts + carried], values[consts + carried :]
        steps = []
        for i in range(length)[:: -1 if params["reverse"] else 1]:
            rows = [
                self.row(value, i, var.aval)
                for value, var in zip(over, params["jaxpr"].jaxpr.invars[consts + carried :], strict=True)
            ]
            results = self.run(params["jaxpr"].jaxpr, params["jaxpr"].consts, [*fixed, *carry, *rows])
            carry = results[:carried]
            steps.append(results[carried:])
        if params["reverse"]:
            steps.reverse()
        stacked = []
        for parts, var in zip(zip(*steps, strict=True), params["jaxpr"].jaxpr.outvars[carried:], strict=True):
            shape = [1, *var.aval.shape]
            rows = [self.reshaped(part, shape) for part in parts]
            stacked.append(rows[0] if length == 1 else self.write("concatenate", rows, 1, axis=0))
        return [*carry, *stacked]

    def row(self, value: Any, index: int, aval: Any) -> Any:
        if isinstance(value, _Key):
            return value
        if not isinstance(value, _Value):
            return np.asarray(value)[index]
        shape = list(aval.shape)
        start, limit = [index, *[0] * len(shape)], [index + 1, *shape]
        return self.reshaped(self.write("slice", [value], 1, start=start, limit=limit, strides=None), shape)

    def reshaped(self, value: Any, shape: list[int]) -> Any:
        if not isinstance(value, _Value):
            return value if isinstance(value, _Key) else np.reshape(value, shape)
        return self.write("reshape", [value], 1, shape=shape)

    def write(self, op: str, values: Sequence[Any], count: int, **attributes: Any) -> Any:
        outputs = [self.new() for _ in range(count)]
        numbers = [self.number(value) for value in values]
        self.equations.append(Equation(op, numbers, [int(name) for name in outputs], attributes))
        return outputs[0] if count == 1 else outputs


def _counts(params: Any) -> tuple[int, int]:
    """Returns the numbers of a scan's constants and of its carried values."""
    if "ft_in" in params:  # JAX 0.12
        consts, carried, _ = params["ft_in"].unpack()
        return len(consts), len(carried)
    return params["num_consts"], params["num_carry"]


_SAME = {
    *("add", "sub", "mul", "div", "rem", "max", "min", "pow", "neg", "abs", "sign", "exp", "expm1", "log", "log1p"),
    *("sqrt", "rsqrt", "square", "sin", "cos", "tanh", "logistic", "erf", "erfc", "floor", "ceil", "is_finite"),
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "clamp"),
}


def _lists(value: Any) -> Any:
    """Returns nested tuples as lists, as in JSON."""
    return [_lists(each) for each in value] if isinstance(value, tuple | list) else value


_RENAMED: dict[str, tuple[str, dict[str, str]]] = {
    "select_n": ("select", {}),
    "integer_pow": ("integer_pow", {"y": "y"}),
    "transpose": ("transpose", {"axes": "permutation"}),
    "rev": ("reverse", {"axes": "dimensions"}),
    "slice": ("slice", {"start": "start_indices", "limit": "limit_indices", "strides": "strides"}),
    "dynamic_slice": ("dynamic_slice", {"sizes": "slice_sizes"}),
    "concatenate": ("concatenate", {"axis": "dimension"}),
    "split": ("split", {"sizes": "sizes", "axis": "axis"}),
    "pad": ("pad", {"config": "padding_config"}),
    **{name: (name, {"axes": "axes"}) for name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")},
    **{name: (name, {"axes": "axes"}) for name in ("reduce_and", "reduce_or")},
    "cumsum": ("cumulative_sum", {"axis": "axis", "reverse": "reverse"}),
    "cummax": ("cumulative_max", {"axis": "axis", "reverse": "reverse"}),
}
"""Primitive -> its operation, and attribute -> parameter of the primitive."""


def _called(equation: Any) -> tuple[Any, Sequence[Any]] | None:
    """Returns the function that an equation calls with its own inputs, and the function's constants; else None.

    Reductions have a function as a parameter too, but it takes scalars.
    """
    params = equation.params
    inner = params.get("jaxpr") or params.get("call_jaxpr") or params.get("fun_jaxpr")
    if inner is None:
        return None
    jaxpr, constants = (inner.jaxpr, inner.consts) if hasattr(inner, "jaxpr") else (inner, ())
    taken, given = ([(v.aval.shape, v.aval.dtype) for v in each.invars] for each in (jaxpr, equation))
    return (jaxpr, constants) if taken == given else None


def _written(name: str, params: Any, avals: Sequence[Any], out: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Returns the operation for a primitive, and its attributes."""
    shape = [int(size) for size in out[0].shape]
    if name in _SAME:
        return name, {}
    if name in ("reshape", "squeeze", "expand_dims") or (name == "split" and len(out) == 1):
        return "reshape", {"shape": shape}
    if name in _RENAMED:
        op, attributes = _RENAMED[name]
        return op, {attribute: _lists(params[given]) for attribute, given in attributes.items()}
    if name == "round" and params["rounding_method"].name == "TO_NEAREST_EVEN":
        return name, {}
    if name == "convert_element_type":
        return "convert", {"dtype": str(out[0].dtype)}
    if name == "broadcast_in_dim":
        return "broadcast", {"shape": shape, "dims": list(params["broadcast_dimensions"])}
    if name == "dot_general":
        contract, batch = params["dimension_numbers"]
        return "dot", {"contract": _lists(contract), "batch": _lists(batch)}
    if name == "conv_general_dilated":
        plain = params["feature_group_count"] == params["batch_group_count"] == 1 and set(params["lhs_dilation"]) == {1}
        if plain and all(least >= 0 for pair in params["padding"] for least in pair):
            lhs, rhs, of_out = params["dimension_numbers"]
            return "conv", {
                "strides": list(params["window_strides"]),
                "padding": _lists(params["padding"]),
                "dilation": list(params["rhs_dilation"]),
                "lhs": list(lhs),
                "rhs": list(rhs),
                "into": list(of_out),
            }
    pools = {"reduce_window_max": "max_pool", "reduce_window_sum": "sum_pool"}
    if name in pools and set(params["base_dilation"]) == set(params["window_dilation"]) == {1}:
        return pools[name], {
            "size": list(params["window_dimensions"]),
            "strides": list(params["window_strides"]),
            "padding": _lists(params["padding"]),
        }
    if name == "gather":
        numbers, fill = params["dimension_numbers"], None
        if params["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP:
            fill = params["fill_value"]
            if fill is None:
                kind = out[0].dtype.kind
                fill = float("nan") if kind == "f" else True if kind == "b" else int(np.iinfo(out[0].dtype).max)
                fill = int(np.iinfo(out[0].dtype).min) if kind == "i" else fill
        return name, {
            "offset": list(numbers.offset_dims),
            "collapsed": list(numbers.collapsed_slice_dims),
            "index_map": list(numbers.start_index_map),
            "batching": list(numbers.operand_batching_dims),
            "index_batching": list(numbers.start_indices_batching_dims),
            "sizes": list(params["slice_sizes"]),
            "fill": fill,
            "shape": shape,
        }
    if name in ("argmax", "argmin"):
        return name, {"axis": params["axes"][0], "dtype": str(out[0].dtype)}
    if name == "top_k" and out[0].dtype.kind == "f":
        return name, {"k": params["k"]}
    raise UsageError(f"the policy has an operation that can't be exported: {name}, of {avals[0].str_short()}.")
