"""An exported policy, for NumPy alone; this file reads policy.npz and policy.json in the same folder.

    from policy import load

    policy = load("folder")
    action, state = policy.step(observation)          # starts an episode
    action, state = policy.step(observation, state)   # continues it

An observation is one observation of the environment, or a batch with a leading axis. Actions are in the environment's
own units. If `policy.reads_reward` is true, pass the last reward as `reward=`.
"""

import functools
import hashlib
import io
import json
import math
import os

import numpy as np


def load(folder=None, seed=0):
    """Returns the policy in a folder, by default the folder of this file; `seed` seeds its random numbers."""
    return Policy(os.path.dirname(os.path.abspath(__file__)) if folder is None else folder, seed)


class Policy:
    """The policy in a folder; `about` describes the run that it comes from."""

    def __init__(self, folder, seed=0):
        with open(os.path.join(folder, "policy.json"), encoding="utf-8") as file:
            described = json.load(file)
        if described["format"] != 1:
            raise ValueError(f"{folder} has format {described['format']}, and this file reads format 1")
        self.about = described["about"]
        self.reads_reward = described["reads_reward"]
        self._spec = described["observations"]
        self._inputs, self._outputs = described["inputs"], described["outputs"]
        with open(os.path.join(folder, "policy.npz"), "rb") as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() != self.about["sha256"]["policy.npz"]:
            raise ValueError(f"{folder} has a policy.npz of another export than its policy.json: export again")
        with np.load(io.BytesIO(content)) as arrays:
            constants = {int(name[1:]): arrays[name] for name in arrays.files if name[0] == "c"}
            self._initial = [arrays[f"s{i}"] for i in range(len(self._inputs["state"]))]
            self._bounds = [arrays[name] for name in ("minimum", "maximum")] if "minimum" in arrays.files else None
        self._constants = constants
        rng = np.random.default_rng(seed)
        self._program = []
        for equation in described["equations"]:
            attributes = {name: value for name, value in equation.items() if name not in ("op", "in", "out")}
            if equation["op"].startswith("random_"):
                attributes["rng"] = rng
            function = functools.partial(OPS[equation["op"]], **attributes)
            self._program.append((function, equation["in"], equation["out"]))

    def initial_state(self, batch=None):
        """Returns the state at the start of an episode, for one environment or a batch."""
        return tuple(np.repeat(leaf, batch or 1, axis=0) for leaf in self._initial)

    def step(self, observation, state=None, reward=None, first=None):
        """Returns `(action, state)` for one observation, or for a batch.

        `state` is the state that the last step returned, or None at the start of all episodes. `first`, a bool or one
        per environment of a batch, marks the environments where a new episode starts.
        """
        leaves = [
            np.asarray(leaf, spec["dtype"])
            for leaf, spec in zip(_leaves(observation, self._spec), _leaves(self._spec, self._spec))
        ]
        ranks = {leaf.ndim - len(spec["shape"]) for leaf, spec in zip(leaves, _leaves(self._spec, self._spec))}
        if ranks not in ({0}, {1}):
            raise ValueError(f"an observation of the shapes {[leaf.shape for leaf in leaves]}: it is no {self._spec}")
        for leaf, spec in zip(leaves, _leaves(self._spec, self._spec)):
            if list(leaf.shape[leaf.ndim - len(spec["shape"]) :]) != spec["shape"]:
                raise ValueError(f"an observation of the shape {leaf.shape}: it must end in {spec['shape']}")
        single = ranks == {0}
        if single:
            leaves = [leaf[None] for leaf in leaves]
        batch = len(leaves[0])
        if first is None:
            first = state is None
        first = np.broadcast_to(np.asarray(first, np.bool_), batch)
        if self.reads_reward and reward is None and not first.all():
            raise ValueError("this policy has the last reward as an input: give it, as reward=reward")
        reward = np.broadcast_to(np.asarray(0.0 if reward is None else reward, np.float32), batch)
        state = self.initial_state(batch) if state is None else state
        rows = [
            self._row(
                [x[i : i + 1] for x in leaves], [s[i : i + 1] for s in state], reward[i : i + 1], first[i : i + 1]
            )
            for i in range(batch)
        ]
        action = np.concatenate([row[0] for row in rows])
        if self._bounds is not None:
            minimum, maximum = self._bounds
            action = action.reshape(batch, *minimum.shape)
            action = np.clip(minimum / 2 + maximum / 2 + (maximum / 2 - minimum / 2) * action, minimum, maximum)
        state = tuple(np.concatenate(leaves) for leaves in zip(*(row[1] for row in rows)))
        return (action[0] if single else action), state

    def _row(self, observation, state, reward, first):
        values = dict(self._constants)
        inputs = self._inputs
        names = [*inputs["observation"], *inputs["state"], inputs["reward"], inputs["first"]]
        values.update(zip(names, [*observation, *state, reward, first]))
        for function, arguments, results in self._program:
            made = function(*[values[name] for name in arguments])
            if len(results) == 1:
                values[results[0]] = made
            else:
                values.update(zip(results, made))
        return values[self._outputs["action"]], [values[name] for name in self._outputs["state"]]


def _leaves(value, spec):
    """The arrays of a nest with the structure of a spec: fields sorted by name, parts in order."""
    if "fields" in spec:
        inner = value["fields"] if value is spec else value
        return [leaf for name in sorted(spec["fields"]) for leaf in _leaves(inner[name], spec["fields"][name])]
    if "parts" in spec:
        inner = value["parts"] if value is spec else value
        return [leaf for part, its in zip(inner, spec["parts"]) for leaf in _leaves(part, its)]
    return [value]


def _unary(function):
    return lambda x: function(x).astype(x.dtype)


def _divide(a, b):
    if a.dtype.kind == "f":
        return a / b
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))  # rounds towards zero


def spread(sizes, axes, rank):
    """A shape of `rank` axes, with these sizes at `axes` and 1 elsewhere."""
    shape = [1] * rank
    for axis, size in zip(axes, sizes):
        shape[axis] = size
    return shape


def _broadcast(x, shape, dims):
    return np.broadcast_to(x.reshape(spread(x.shape, dims, len(shape))), shape)


def _slice(x, start, limit, strides):
    return x[tuple(map(slice, start, limit, strides or [1] * len(start)))]


def _pad(x, value, config):
    for axis, (low, high, inner) in enumerate(config):
        size = x.shape[axis] + inner * max(0, x.shape[axis] - 1)
        shape = list(x.shape)
        shape[axis] = size + max(0, low) + max(0, high)
        padded = np.full(shape, value, x.dtype)
        where = [slice(None)] * x.ndim
        where[axis] = slice(max(0, low), max(0, low) + size, inner + 1)
        padded[tuple(where)] = x
        where[axis] = slice(max(0, -low), shape[axis] - max(0, -high))
        x = padded[tuple(where)]
    return x


def subscripts(a, b, contract, batch):
    """The subscripts of `np.einsum` for a product: of `a`, of `b` and of the output, as numbers."""
    (ca, cb), (ba, bb) = contract, batch
    of_a, of_b = list(range(a.ndim)), list(range(a.ndim, a.ndim + b.ndim))
    for i, j in [*zip(ca, cb), *zip(ba, bb)]:
        of_b[j] = of_a[i]
    out = [of_a[i] for i in ba]
    out += [x for i, x in enumerate(of_a) if i not in ca and i not in ba]
    out += [x for j, x in enumerate(of_b) if j not in cb and j not in bb]
    return of_a, of_b, out


def _dot(a, b, contract, batch):
    (ca, cb), (ba, _) = contract, batch
    if not ba and len(ca) == 1 and a.ndim == b.ndim == 2:
        return (a if ca[0] == 1 else a.T) @ (b if cb[0] == 0 else b.T)
    of_a, of_b, out = subscripts(a, b, contract, batch)
    return np.einsum(a, of_a, b, of_b, out)


def _windows(x, size, strides, dilation):
    """Windows over the axes 1 to n of `[N, *spatial, C]`: `[N, *positions, C, *size]`."""
    spans = [(s - 1) * d + 1 for s, d in zip(size, dilation)]
    axes = tuple(range(1, 1 + len(size)))
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, axes)  # pyright: ignore
    positions = tuple(slice(None, None, s) for s in strides)
    inner = tuple(slice(None, None, d) for d in dilation)
    return windows[(slice(None), *positions, slice(None), *inner)]


def _conv(x, kernel, strides, padding, dilation, lhs, rhs, into):
    n = len(strides)
    x = x.transpose([lhs[0], *lhs[2:], lhs[1]])  # [N, *spatial, C]
    kernel = kernel.transpose([rhs[1], *rhs[2:], rhs[0]])  # [C, *size, O]
    x = np.pad(x, [(0, 0), *padding, (0, 0)])
    windows = _windows(x, kernel.shape[1:-1], strides, dilation)  # [N, *positions, C, *size]
    y = np.tensordot(windows, kernel, axes=(list(range(n + 1, 2 * n + 2)), list(range(n + 1))))
    order = [0] * (n + 2)
    for source, target in enumerate([into[0], *into[2:], into[1]]):
        order[target] = source
    return np.ascontiguousarray(y.transpose(order))


def _reduce_window(x, function, size, strides, padding, initial):
    x = np.pad(x, padding, constant_values=initial)
    windows = np.lib.stride_tricks.sliding_window_view(x, size)
    windows = windows[tuple(slice(None, None, s) for s in strides)]
    return function(windows, axis=tuple(range(x.ndim, 2 * x.ndim)))


def _gather(x, indices, offset, collapsed, index_map, batching, index_batching, sizes, fill, shape):
    places = [axis for axis in range(len(shape)) if axis not in offset]  # output axes that run over the indices
    kept = iter(offset)
    there, index = True, []
    around = indices.shape[:-1]

    def along(values, axes):
        return values.reshape(spread(values.shape, axes, len(shape)))

    for dim, size in enumerate(x.shape):
        if dim in index_map:
            start = indices[..., index_map.index(dim)].astype(np.int64)
            last = size - sizes[dim]
            there = there & along((start >= 0) & (start <= last), places)
            position = along(np.clip(start, 0, last), places)
        elif dim in batching:
            axis = index_batching[batching.index(dim)]
            position = along(np.arange(around[axis]), [places[axis]])
        else:
            position = np.zeros([1] * len(shape), np.int64)
        if dim not in collapsed and dim not in batching:
            position = position + along(np.arange(sizes[dim]), [next(kept)])
        index.append(position)
    found = np.broadcast_to(x[tuple(index)], shape)
    return found if fill is None else np.where(there, found, np.asarray(fill, x.dtype))


def _dynamic_slice(x, *starts, sizes):
    begin = [int(np.clip(s, 0, n - size)) for s, n, size in zip(starts, x.shape, sizes)]
    return x[tuple(slice(b, b + size) for b, size in zip(begin, sizes))]


def _top_k(x, k):
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k].astype(np.int32)
    return np.take_along_axis(x, order, axis=-1), order


def _convert(x, dtype):
    return x.astype(dtype)


def _cumulative(function):
    def call(x, axis, reverse):
        total = np.flip(function(np.flip(x, axis), axis), axis) if reverse else function(x, axis)
        return total.astype(x.dtype)  # NumPy adds small integers as int64

    return call


def _reduction(function):
    return lambda x, axes: function(x, axis=tuple(axes)).astype(x.dtype)


def _random_uniform(minimum, maximum, shape, rng):
    return np.clip(
        minimum + (maximum - minimum) * rng.random(shape, np.float32), minimum, np.nextafter(maximum, minimum)
    )


def _random_bits(shape, width, rng):
    return rng.integers(0, 2**width, shape, f"uint{width}")


def _quietly(function):
    def call(*arguments, **attributes):
        with np.errstate(all="ignore"):
            return function(*arguments, **attributes)

    return call


OPS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _quietly(_divide),
    "rem": _quietly(np.fmod),
    "max": np.maximum,
    "min": np.minimum,
    "pow": _quietly(lambda a, b: np.power(a, b).astype(a.dtype)),
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "exp": _quietly(np.exp),
    "expm1": _quietly(np.expm1),
    "log": _quietly(np.log),
    "log1p": _quietly(np.log1p),
    "sqrt": _quietly(np.sqrt),
    "rsqrt": _quietly(lambda x: 1 / np.sqrt(x)),
    "square": np.square,
    "integer_pow": _quietly(lambda x, y: x**y if y >= 0 else 1 / x**-y),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "logistic": _quietly(lambda x: 1 / (1 + np.exp(-x))),
    "erf": _unary(np.vectorize(math.erf, otypes=[np.float64])),
    "erfc": _unary(np.vectorize(math.erfc, otypes=[np.float64])),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "is_finite": np.isfinite,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "clamp": lambda low, x, high: np.clip(x, low, high),
    "select": lambda which, *cases: np.choose(which.astype(np.intp), cases),
    "convert": _convert,
    "broadcast": _broadcast,
    "reshape": lambda x, shape: x.reshape(shape),
    "transpose": lambda x, axes: x.transpose(axes),
    "reverse": lambda x, axes: np.flip(x, tuple(axes)),
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "concatenate": lambda *parts, axis: np.concatenate(parts, axis),
    "split": lambda x, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis),
    "pad": _pad,
    "dot": _dot,
    "conv": _conv,
    "max_pool": lambda x, **window: _reduce_window(x, np.max, initial=-np.inf, **window),
    "sum_pool": lambda x, **window: _reduce_window(x, np.sum, initial=0, **window),
    "gather": _gather,
    "argmax": lambda x, axis, dtype: np.argmax(x, axis).astype(dtype),
    "argmin": lambda x, axis, dtype: np.argmin(x, axis).astype(dtype),
    "top_k": _top_k,
    "reduce_sum": _reduction(np.sum),
    "reduce_prod": _reduction(np.prod),
    "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
    "reduce_and": _reduction(np.all),
    "reduce_or": _reduction(np.any),
    "cumulative_sum": _cumulative(np.cumsum),
    "cumulative_max": _cumulative(np.maximum.accumulate),
    "random_uniform": _random_uniform,
    "random_bits": _random_bits,
}
