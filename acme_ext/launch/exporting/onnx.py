"""Converts a program of simple operations to an ONNX graph; `OPS` in `exporting.policy` has all operations."""

import importlib
import math
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from acme_ext.errors import UsageError
from acme_ext.launch.exporting import policy as standalone
from acme_ext.launch.exporting.program import Program

_OPSET = 15
_IR_VERSION = 8

_SAME = (
    "add",
    "sub",
    "mul",
    "div",
    "max",
    "min",
    "pow",
    "neg",
    "abs",
    "sign",
    "exp",
    "log",
    "sqrt",
    "sin",
    "cos",
    "tanh",
)
_PLAIN = {
    **{op: op.capitalize() for op in (*_SAME, "erf", "floor", "ceil", "round")},
    "logistic": "Sigmoid",
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
}
_REDUCTIONS = {"reduce_prod": "ReduceProd", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin"}
_OF_ALL = {"reduce_or": "ReduceMax", "reduce_and": "ReduceMin"}
_PLACES = {"argmax": "ArgMax", "argmin": "ArgMin"}
_OF_BOOLEANS = {"and": "And", "or": "Or", "xor": "Xor", "not": "Not"}


def convert(
    program: Program,
    arguments: Sequence[Any],
    inputs: Sequence[str],
    outputs: Sequence[str],
    bounds: tuple[np.ndarray, np.ndarray] | None = None,
) -> bytes:
    """Returns a program as a serialised ONNX model, which `onnxruntime` can load.

    Args:
        program: the program.
        arguments: shape and dtype of each input; the model leaves out unused inputs.
        inputs: the names of the inputs.
        outputs: the names of the outputs.
        bounds: minimum and maximum of the first output, which is scaled to them from [-1, 1]; None for no scaling.

    Raises:
        UsageError: the program has an operation that ONNX doesn't have; the message names it.
    """
    helper = importlib.import_module("onnx.helper")

    def value_info(name: str, example: np.ndarray) -> Any:
        return helper.make_tensor_value_info(name, _type_of(example.dtype), example.shape)

    given = [np.zeros(argument.shape, argument.dtype) for argument in arguments]
    examples = _examples(program, given)
    graph = _Graph()
    names = {number: graph.constant(value) for number, value in program.constants.items()}
    names |= dict(zip(program.inputs, inputs, strict=True))
    for equation in program.equations:
        before, after = ([examples[n] for n in numbers] for numbers in (equation.inputs, equation.outputs))
        made = graph.write(equation.op, [names[n] for n in equation.inputs], before, after, equation.attributes)
        names |= dict(zip(equation.outputs, made, strict=True))
    results = [examples[number] for number in program.outputs]
    found = [names[number] for number in program.outputs]
    if bounds is not None:
        minimum, maximum = (np.asarray(bound, results[0].dtype) for bound in bounds)
        results[0] = results[0].reshape(1, *minimum.shape)
        scaled = graph.op("Mul", graph.shaped(found[0], results[0].shape), graph.constant(maximum / 2 - minimum / 2))
        moved = graph.op("Add", scaled, graph.constant(minimum / 2 + maximum / 2))
        found[0] = graph.op("Min", graph.op("Max", moved, graph.constant(minimum)), graph.constant(maximum))
    for name, value in zip(outputs, found, strict=True):
        graph.nodes.append(helper.make_node("Identity", [value], [name]))
    read = {name for node in graph.nodes for name in node.input}
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "policy",
            [value_info(name, value) for name, value in zip(inputs, given, strict=True) if name in read],
            [value_info(name, value) for name, value in zip(outputs, results, strict=True)],
            [constant for constant in graph.initializers if constant.name in read],
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        producer_name="acme_ext",
    )
    model.ir_version = _IR_VERSION
    importlib.import_module("onnx.checker").check_model(model)
    return model.SerializeToString()


def _examples(program: Program, given: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """Returns all values of a program for some inputs; they show the shapes and dtypes."""
    values = {**program.constants, **dict(zip(program.inputs, given, strict=True))}
    rng = np.random.default_rng(0)
    for equation in program.equations:
        more = {"rng": rng} if equation.op.startswith("random_") else {}
        function: Callable[..., Any] = standalone.OPS[equation.op]
        made = function(*(values[number] for number in equation.inputs), **equation.attributes, **more)
        made = [made] if len(equation.outputs) == 1 else made
        values.update(zip(equation.outputs, map(np.asarray, made), strict=True))
    return values


def _type_of(dtype: Any) -> int:
    """Returns ONNX's number for a dtype."""
    helper = importlib.import_module("onnx.helper")
    if hasattr(helper, "np_dtype_to_tensor_dtype"):
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    return importlib.import_module("onnx.mapping").NP_TYPE_TO_TENSOR_TYPE[np.dtype(dtype)]  # until onnx 1.12


class _Graph:
    """The nodes and constants of a graph, by name."""

    def __init__(self) -> None:
        self._helper = importlib.import_module("onnx.helper")
        self._numpy = importlib.import_module("onnx.numpy_helper")
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._count = 0

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def constant(self, value: Any) -> str:
        """Adds a constant and returns its name."""
        name = self._name()
        self.initializers.append(self._numpy.from_array(np.array(value), name))
        return name

    def op(self, kind: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        """Adds an ONNX operation and returns the name of its output, or the names of several."""
        names = [self._name() for _ in range(count)]
        self.nodes.append(self._helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if count == 1 else names

    def shaped(self, value: str, shape: Sequence[int]) -> str:
        """Reshapes a value."""
        return self.op("Reshape", value, self.constant(np.array(shape, np.int64)))

    def cast(self, value: str, dtype: Any) -> str:
        """Casts a value to another dtype."""
        return self.op("Cast", value, to=_type_of(dtype))

    def write(
        self,
        op: str,
        x: list[str],
        before: list[np.ndarray],
        after: list[np.ndarray],
        attributes: dict[str, Any],
    ) -> list[str]:
        """Adds an operation of `exporting.policy` and returns the names of its outputs.

        Args:
            op: the operation's name.
            x: the names of its inputs.
            before: an example of each input.
            after: an example of each output.
            attributes: the operation's attributes.
        """
        boolean = bool(before) and before[0].dtype == np.bool_
        if op in _PLAIN:
            return [self.op(_PLAIN[op], *x)]
        if op in _OF_BOOLEANS and boolean:
            return [self.op(_OF_BOOLEANS[op], *x)]
        if op in _REDUCTIONS:
            return [self.op(_REDUCTIONS[op], x[0], keepdims=0, **attributes)]
        if op in _OF_ALL:
            return [self.cast(self.op(_OF_ALL[op], self.cast(x[0], np.int32), keepdims=0, **attributes), np.bool_)]
        if op in _PLACES:
            return [self.cast(self.op(_PLACES[op], x[0], axis=attributes["axis"], keepdims=0), attributes["dtype"])]
        special = getattr(self, f"_{op}", None)
        if special is None:
            shape = f"{after[0].dtype}{list(after[0].shape)}"
            raise UsageError(f"the policy has an operation that can't be exported to ONNX: {op}, to {shape}.")
        made = special(x, before, after, **attributes)
        return [made] if isinstance(made, str) else made

    # Operations that need more than one node ------------------------------------------------------------------------

    def _one(self, like: np.ndarray) -> str:
        return self.constant(np.ones((), like.dtype))

    def _rem(self, x, before, after):
        return self.op("Mod", *x, fmod=1)

    def _expm1(self, x, before, after):
        return self.op("Sub", self.op("Exp", *x), self._one(before[0]))

    def _log1p(self, x, before, after):
        return self.op("Log", self.op("Add", *x, self._one(before[0])))

    def _rsqrt(self, x, before, after):
        return self.op("Reciprocal", self.op("Sqrt", *x))

    def _square(self, x, before, after):
        return self.op("Mul", x[0], x[0])

    def _integer_pow(self, x, before, after, y):
        return self.op("Pow", x[0], self.constant(np.array(y, before[0].dtype)))

    def _erfc(self, x, before, after):
        return self.op("Sub", self._one(before[0]), self.op("Erf", *x))

    def _is_finite(self, x, before, after):
        return self.op("Not", self.op("Or", self.op("IsInf", *x), self.op("IsNaN", *x)))

    def _ne(self, x, before, after):
        return self.op("Not", self.op("Equal", *x))

    def _clamp(self, x, before, after):
        low, value, high = x
        return self.op("Min", self.op("Max", value, low), high)

    def _select(self, x, before, after):
        which, cases = x[0], x[1:]
        if before[0].dtype == np.bool_:
            return self.op("Where", which, cases[1], cases[0])
        chosen = cases[0]
        for i, case in enumerate(cases[1:], 1):
            chosen = self.op(
                "Where", self.op("Equal", which, self.constant(np.array(i, before[0].dtype))), case, chosen
            )
        return chosen

    def _convert(self, x, before, after, dtype):
        return self.cast(x[0], dtype)

    def _broadcast(self, x, before, after, shape, dims):
        middle = standalone.spread(before[0].shape, dims, len(shape))
        return self.op("Expand", self.shaped(x[0], middle), self.constant(np.array(shape, np.int64)))

    def _reshape(self, x, before, after, shape):
        return self.shaped(x[0], shape)

    def _transpose(self, x, before, after, axes):
        return self.op("Transpose", x[0], perm=axes)

    def _cut(self, value: str, start: Any, end: Any, axes: Any, steps: Any) -> str:
        return self.op("Slice", value, *(self.constant(np.array(v, np.int64)) for v in (start, end, axes, steps)))

    def _reverse(self, x, before, after, axes):
        count = len(axes)
        return self._cut(x[0], [-1] * count, [np.iinfo(np.int64).min] * count, axes, [-1] * count)

    def _slice(self, x, before, after, start, limit, strides):
        return self._cut(x[0], start, limit, range(len(start)), strides or [1] * len(start))

    def _dynamic_slice(self, x, before, after, sizes):
        starts = []
        for name, size, whole in zip(x[1:], sizes, before[0].shape, strict=True):
            start = self.op("Max", self.cast(name, np.int64), self.constant(np.int64(0)))
            starts.append(self.shaped(self.op("Min", start, self.constant(np.int64(whole - size))), [1]))
        start = self.op("Concat", *starts, axis=0)
        return self.op("Slice", x[0], start, self.op("Add", start, self.constant(np.array(sizes, np.int64))))

    def _concatenate(self, x, before, after, axis):
        return self.op("Concat", *x, axis=axis)

    def _split(self, x, before, after, sizes, axis):
        made = self.op("Split", x[0], self.constant(np.array(sizes, np.int64)), count=len(sizes), axis=axis)
        return [made] if len(sizes) == 1 else made

    def _pad(self, x, before, after, config):
        if any(low < 0 or high < 0 or inner for low, high, inner in config):
            raise UsageError("the policy has an operation that can't be exported to ONNX: pad, between elements.")
        pads = [low for low, _, _ in config] + [high for _, high, _ in config]
        return self.op("Pad", x[0], self.constant(np.array(pads, np.int64)), x[1])

    def _dot(self, x, before, after, contract, batch):
        (of_a, of_b), (batch_a, _) = contract, batch
        a, b = before
        if not batch_a and len(of_a) == 1 and a.ndim == b.ndim == 2:
            first = x[0] if of_a[0] == 1 else self.op("Transpose", x[0], perm=[1, 0])
            return self.op("MatMul", first, x[1] if of_b[0] == 0 else self.op("Transpose", x[1], perm=[1, 0]))
        numbers = standalone.subscripts(a, b, contract, batch)
        named_a, named_b, out = ("".join(string.ascii_lowercase[n] for n in each) for each in numbers)
        return self.op("Einsum", *x, equation=f"{named_a},{named_b}->{out}")

    def _conv(self, x, before, after, strides, padding, dilation, lhs, rhs, into):
        value = self.op("Transpose", x[0], perm=lhs)
        kernel = self.op("Transpose", x[1], perm=rhs)
        pads = [low for low, _ in padding] + [high for _, high in padding]
        made = self.op("Conv", value, kernel, strides=strides, pads=pads, dilations=dilation)
        return self.op("Transpose", made, perm=np.argsort(into).tolist())

    def _pooled(self, kind, x, size, strides, padding, **more):
        inner = range(1, len(size) - 1)
        if any((size[i], strides[i], *padding[i]) != (1, 1, 0, 0) for i in (0, -1)) or not inner:
            raise UsageError("the policy has an operation that can't be exported to ONNX: pooling over all axes.")
        last = len(size) - 1
        pads = [padding[i][0] for i in inner] + [padding[i][1] for i in inner]
        window = {"kernel_shape": [size[i] for i in inner], "strides": [strides[i] for i in inner], "pads": pads}
        made = self.op(kind, self.op("Transpose", x[0], perm=[0, last, *inner]), **window, **more)
        return self.op("Transpose", made, perm=[0, *(i + 1 for i in inner), 1])

    def _max_pool(self, x, before, after, size, strides, padding):
        return self._pooled("MaxPool", x, size, strides, padding)

    def _sum_pool(self, x, before, after, size, strides, padding):
        mean = self._pooled("AveragePool", x, size, strides, padding, count_include_pad=1)
        return self.op("Mul", mean, self.constant(np.array(math.prod(size), before[0].dtype)))

    def _gather(self, x, before, after, offset, collapsed, index_map, batching, index_batching, sizes, fill, shape):
        # As in `exporting.policy`, computes the index on each axis of the array for every element of the output.
        places = [axis for axis in range(len(shape)) if axis not in offset]
        kept, around = iter(offset), before[1].shape[:-1]
        indices, there, positions = self.cast(x[1], np.int64), [], []

        def counted(count: int, axis: int) -> str:
            return self.constant(np.arange(count).reshape(standalone.spread([count], [axis], len(shape))))

        for dim, whole in enumerate(before[0].shape):
            position = self.constant(np.zeros([1] * len(shape), np.int64))
            if dim in index_map:
                at = index_map.index(dim)
                start = self._cut(indices, [at], [at + 1], [len(around)], [1])
                start = self.shaped(start, standalone.spread(around, places, len(shape)))
                zero, last = self.constant(np.int64(0)), self.constant(np.int64(whole - sizes[dim]))
                there += [self.op("GreaterOrEqual", start, zero), self.op("LessOrEqual", start, last)]
                position = self.op("Min", self.op("Max", start, zero), last)
            elif dim in batching:
                axis = index_batching[batching.index(dim)]
                position = counted(around[axis], places[axis])
            if dim not in collapsed and dim not in batching:
                position = self.op("Add", position, counted(sizes[dim], next(kept)))
            whole_shape = self.constant(np.array(shape, np.int64))
            positions.append(self.shaped(self.op("Expand", position, whole_shape), [*shape, 1]))
        found = self.op("GatherND", x[0], self.op("Concat", *positions, axis=len(shape)))
        if fill is None:
            return found
        inside = there[0]
        for each in there[1:]:
            inside = self.op("And", inside, each)
        return self.op("Where", inside, found, self.constant(np.array(fill, before[0].dtype)))

    def _top_k(self, x, before, after, k):
        values, order = self.op("TopK", x[0], self.constant(np.array([k], np.int64)), count=2, axis=-1)
        return [values, self.cast(order, after[1].dtype)]

    def _reduce_sum(self, x, before, after, axes):
        return self.op("ReduceSum", x[0], self.constant(np.array(axes, np.int64)), keepdims=0)

    def _cumulative_sum(self, x, before, after, axis, reverse):
        return self.op("CumSum", x[0], self.constant(np.int64(axis)), reverse=int(reverse))

    def _random_uniform(self, x, before, after, shape):
        low, high = x
        drawn = self.op("RandomUniform", shape=shape, low=0.0, high=1.0, dtype=_type_of(np.float32))
        return self.op("Add", low, self.op("Mul", self.op("Sub", high, low), drawn))
