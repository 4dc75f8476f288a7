import importlib.util
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import saved_runs
from jax import export as jax_export

from acme_ext import launch
from acme_ext.builders import DQN, R2D2, TD3
from acme_ext.commands import cli
from acme_ext.errors import UsageError
from acme_ext.launch.exporting import onnx
from acme_ext.launch.exporting.policy import OPS
from acme_ext.launch.exporting.program import trace
from benchmarks.speed import exported


def evaluated(program, *arrays):
    """What a program gives for arrays, and nothing but NumPy."""
    values = {**program.constants, **dict(zip(program.inputs, arrays, strict=True))}
    for equation in program.equations:
        made = OPS[equation.op](*(values[name] for name in equation.inputs), **equation.attributes)
        made = [made] if len(equation.outputs) == 1 else made
        values.update(zip(equation.outputs, made, strict=True))
    assert not any(isinstance(value, jax.Array) for value in values.values())
    return [values[name] for name in program.outputs]


def convolved(stride, padding, dilation=1, order=("NHWC", "HWIO", "NHWC")):
    def function(x, kernel):
        return jax.lax.conv_general_dilated(x, kernel, (stride, stride), padding, (1, 1), (dilation,) * 2, order)

    return function


def pooled(x):
    window = (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *window) + jax.lax.reduce_window(
        x, 0.0, jax.lax.add, *window
    )


def looped(x):
    def step(carry, row):
        return carry * 0.5 + row, (carry.sum(), row[::-1])

    return jax.lax.scan(step, x[0], x, reverse=True)


RNG = np.random.default_rng(0)
A, B = (RNG.normal(size=(3, 4)).astype(np.float32) for _ in range(2))
IMAGE = RNG.normal(size=(2, 9, 8, 3)).astype(np.float32)
KERNEL = RNG.normal(size=(3, 2, 3, 5)).astype(np.float32)

FUNCTIONS = {
    "arithmetic": (lambda a, b: a * b - a / b + jnp.maximum(a, -b) ** 3 + a % b, A, B),
    "functions": (lambda a: jnp.exp(a) + jnp.log1p(jnp.abs(a)) + jax.nn.softplus(a) + jax.nn.gelu(a, False), A),
    "squashing": (
        lambda a: jnp.tanh(a) * jax.nn.sigmoid(a) + jax.nn.elu(a) + jnp.sign(a) * jax.lax.rsqrt(a * a + 1),
        A,
    ),
    "comparing": (lambda a, b: jnp.where((a > b) & ~(a < 0), a, jnp.clip(b, -0.5, 0.5)), A, B),
    "integers": (lambda a: (jnp.round(a * 9).astype(jnp.int32) // 2, jnp.isfinite(a), jnp.floor(a), jnp.ceil(a)), A),
    "products": (lambda a, b: (a @ b.T, a.T @ b, jnp.einsum("bi,bj->bij", a, b), jnp.einsum("bi,bi->b", a, b)), A, B),
    "shapes": (lambda a, b: jnp.concatenate([a.reshape(2, 6).T[::2], b[:, 1:3][:, ::-1]], axis=0), A, B),
    "padding": (lambda a: jax.lax.pad(a, 7.0, [(1, -1, 1), (-1, 2, 0)]), A),
    "splitting": (lambda a: jnp.split(a, 2, axis=1) + jnp.split(a, 1) + list(jax.lax.top_k(a, 2)), A),
    "reducing": (lambda a: (a.sum(0), a.max(1), a.min(), a.prod(), (a > 0).any(1), jnp.argmax(a, 1), jnp.argmin(a)), A),
    "cumulating": (lambda a: (jnp.cumsum(a, 0), jnp.cumsum(a > 0, 1), jax.lax.cummax(a, 1, reverse=True)), A),
    "gathering": (lambda a: (a[jnp.argmax(a, 0), 1:3], jnp.take_along_axis(a, jnp.argsort(jnp.zeros((3, 1))), 1)), A),
    "beyond": (lambda a: jnp.take(a, jnp.round(a[0] * 9).astype(jnp.int32), axis=0), A),
    "dynamic": (lambda a: jax.lax.dynamic_slice(a, (jnp.argmax(a[:, 0]), 9), (2, 2)), A),
    "convolving": (convolved(2, "SAME"), IMAGE, KERNEL),
    "dilated": (convolved(1, "VALID", 2), IMAGE, KERNEL),
    "channels first": (
        convolved(1, [(1, 0), (0, 2)], order=("NCHW", "OIHW", "NCHW")),
        IMAGE.transpose(0, 3, 1, 2),
        KERNEL.transpose(3, 2, 0, 1),
    ),
    "pooling": (pooled, IMAGE),
    "loops": (looped, A),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_operation_is_as_jax_has_it(name):
    function, *arrays = FUNCTIONS[name]
    program = trace(lambda *x: jax.tree.leaves(function(*x)), *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays))
    wanted = jax.tree.leaves(function(*map(jnp.asarray, arrays)))
    for got, want in zip(evaluated(program, *arrays), wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def in_onnx(model):
    """Runs a model of ONNX: given arrays by name, of which it takes those that it reads."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    reads = {each.name for each in session.get_inputs()}
    return lambda **given: session.run(None, {name: value for name, value in given.items() if name in reads})


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"padding", "cumulating"}))
def test_each_operation_of_onnx_is_as_jax_has_it(name):
    pytest.importorskip("onnx")
    function, *arrays = FUNCTIONS[name]
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
    program = trace(lambda *x: jax.tree.leaves(function(*x)), *shapes)
    wanted = jax.tree.leaves(function(*map(jnp.asarray, arrays)))
    inputs = [f"x{i}" for i in range(len(arrays))]
    model = onnx.convert(program, shapes, inputs, [f"y{i}" for i in range(len(wanted))])
    for got, want in zip(in_onnx(model)(**dict(zip(inputs, arrays, strict=True))), wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_what_onnx_has_no_operation_for_is_named():
    pytest.importorskip("onnx")
    shape = jax.ShapeDtypeStruct((3, 4), jnp.float32)
    for name, named in (("padding", "pad, between elements"), ("cumulating", r"cumulative_max, to float32\[3, 4\]")):
        function = FUNCTIONS[name][0]
        program = trace(lambda *x, f=function: jax.tree.leaves(f(*x)), shape)
        with pytest.raises(UsageError, match=f"can't be exported to ONNX: {named}"):
            onnx.convert(program, [shape], ["x"], [f"y{i}" for i in range(len(program.outputs))])


def test_what_needs_no_input_is_computed_beforehand():
    weight = jnp.ones((4, 4))
    program = trace(lambda a: [a @ jnp.tanh(weight * 3).T], jax.ShapeDtypeStruct((3, 4), jnp.float32))
    assert [equation.op for equation in program.equations] == ["dot"]
    assert len(program.constants) == 1


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda a: [a.at[jnp.argmax(a)].set(0.0)], "scatter, of float32"),
        (lambda a: [jax.lax.reduce(a, 0.0, jax.lax.max, (0,))], "reduce, of float32"),
        (lambda a: [jax.lax.reduce_window(a, 0.0, jax.lax.max, (2,), (1,), "SAME")], "reduce_window, of float32"),
        (lambda a: [jax.lax.while_loop(lambda x: x.sum() < 9, lambda x: x + 1, a)], "while, of float32"),
        (lambda a: [jax.lax.scan(lambda c, _: (c + 1, None), a, None, 20)[0]], "a loop of 20 steps"),
        (lambda a: [a + jax.random.key_data(jax.random.key(0))[0]], "the bits of a random key"),
    ],
)
def test_what_cant_be_exported_is_named(function, name):
    with pytest.raises(UsageError, match=name):
        trace(function, jax.ShapeDtypeStruct((4,), jnp.float32))


def test_what_is_random_is_drawn_by_numpy():
    def function(low, key):
        keys = jax.random.split(jax.random.wrap_key_data(key), 3)
        return [low + jax.vmap(lambda key: jax.random.uniform(key, (1000,), minval=-1.0))(keys)]

    shapes = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.uint32)
    program = trace(function, *shapes)
    (draw,) = [equation for equation in program.equations if equation.op == "random_uniform"]
    draw.attributes["rng"] = np.random.default_rng(0)
    (drawn,) = evaluated(program, np.float32(5), np.zeros(2, np.uint32))
    assert drawn.shape == (3, 1000)
    assert 4 <= drawn.min() < 4.01
    assert 5.99 < drawn.max() < 6
    np.testing.assert_allclose(drawn.mean(1), 5, atol=0.1)


def loaded(folder, seed=0):
    spec = importlib.util.spec_from_file_location("exported_policy", folder / "policy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load(seed=seed)


@pytest.mark.parametrize(
    ("builder", "environment"),
    [
        (DQN(), "gym:CartPole-v1"),  # an MLP, and observations normalised
        pytest.param(DQN(), "minatar:breakout", marks=pytest.mark.release),  # a convolution
        pytest.param(TD3(), "gym:Pendulum-v1", marks=pytest.mark.slow),  # bounds of actions
        pytest.param(R2D2(), "bsuite:catch/0", marks=pytest.mark.release),  # an LSTM
    ],
    ids=["mlp", "convolution", "bounds", "recurrent"],
)
def test_the_exported_policies_act_as_the_run_does(builder, environment, tmp_path):
    path, out = saved_runs.save(tmp_path / "run", builder, environment), tmp_path / "policy"
    pytest.importorskip("onnx")
    assert cli.main(["export", str(path), "-o", str(out), "--onnx"]) == 0
    run, policy = launch.load(path), loaded(out)
    compiled = jax_export.deserialize(bytearray((out / "policy.jaxexport").read_bytes()))
    spec, rng, state, given = run.loaded.spec.observations, np.random.default_rng(0), None, None
    for step in range(50):
        observation = rng.random((2, *spec.shape)).astype(spec.dtype)
        first, reward = step % 10 == 0, rng.random(2, np.float32)
        wanted, state = run.policy(observation, state, reward=reward, first=first)
        action, given = policy.step(observation, given, reward=reward, first=first)
        np.testing.assert_allclose(action, wanted, atol=1e-5)
        for got, want in zip(given, jax.tree.leaves(state), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-5)
    single, after = policy.step(observation[0], tuple(leaf[:1] for leaf in given), reward=0.5)
    key = np.zeros(2, np.uint32)
    again = compiled.call(observation[:1], *(leaf[:1] for leaf in given), np.float32([0.5]), np.array([False]), key)
    scaled = np.asarray(again[0][0]) * (2.0 if environment == "gym:Pendulum-v1" else 1)
    np.testing.assert_allclose(single, scaled, atol=1e-5)
    for got, want in zip(after, again[1:], strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)
    states = {f"state/{i}": leaf[:1] for i, leaf in enumerate(given)}
    rest = {"reward": np.float32([0.5]), "first": np.array([False])}
    by_onnx = in_onnx(str(out / "policy.onnx"))(observation=observation[:1], **states, **rest)
    np.testing.assert_allclose(single, by_onnx[0][0], atol=1e-5)
    for got, want in zip(after, by_onnx[1:], strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)
    assert (policy.about["environment"], policy.about["steps"]) == (environment, 100)
    assert policy.reads_reward == (environment == "bsuite:catch/0")


def test_one_checkpoint_is_exported(tmp_path):
    path = saved_runs.save(tmp_path / "run", DQN(), "gym:CartPole-v1")
    assert cli.main(["export", str(path / "checkpoints/000000000100"), "-o", str(tmp_path / "policy")]) == 0
    assert loaded(tmp_path / "policy").about["steps"] == 100


def test_an_exported_policy_needs_numpy_alone(tmp_path):
    path, out = saved_runs.save(tmp_path / "run", DQN(), "gym:CartPole-v1"), tmp_path / "policy"
    cli.main(["export", str(path), "-o", str(out)])
    observations = np.random.default_rng(0).normal(size=(30, 4))
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import sys\n"
            "import numpy as np\n"
            "before = set(sys.modules)\n"
            "from policy import load\n"
            "print(load().step(np.random.default_rng(0).normal(size=(30, 4)))[0].tolist())\n"
            "used = {name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
            "assert used <= {'policy', 'numpy'}, used",
        ],
        cwd=out,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(launch.load(path).policy(observations).tolist())
    with pytest.raises(ValueError, match=r"must end in \[4\]"):
        loaded(out).step(np.zeros(3))


def test_parts_of_two_exports_are_not_mixed(tmp_path):
    for name, environment in (("old", "gym:CartPole-v1"), ("new", "gym:Acrobot-v1")):
        cli.main(
            ["export", str(saved_runs.save(tmp_path / "run" / name, DQN(), environment)), "-o", str(tmp_path / name)]
        )
    out = tmp_path / "old"
    loaded(out)
    shutil.copy(tmp_path / "new" / "policy.npz", out)  # as after a kill of an export between the two files
    with pytest.raises(ValueError, match=r"policy\.npz of another export than its policy\.json: export again"):
        loaded(out)


@pytest.mark.release
def test_a_run_that_goes_on_leaves_snapshots(tmp_path):
    run = tmp_path / "run"
    settings = ["--set", "replay.min_size=50", "--set", "batch_size=16", "--eval-episodes", "1", "--quiet"]
    command = ["train", "dqn", "bsuite:catch/0", "--steps", "250", "--run-dir", str(run), *settings]
    assert cli.main([*command, "--snapshot-every", "100"]) == 0
    folders = sorted((run / "snapshots").iterdir())
    assert [int(folder.name) for folder in folders] == [100, 200]
    early, late = map(loaded, folders)
    assert (early.about["steps"], late.about["steps"]) == (100, 200)
    observation = np.random.default_rng(0).random((1, 10, 5), np.float32)
    last = launch.load(run)
    assert early.step(observation)[0].shape == last.policy(observation).shape == (1,)
    differ = [early._constants[i] != late._constants[i] for i in early._constants if early._constants[i].ndim == 2]
    assert any(each.any() for each in differ)  # the weights went on learning


def test_all_exported_policies_act_as_the_run_does_and_are_timed(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    path = saved_runs.save(tmp_path / "run", R2D2(), "bsuite:catch/0")
    assert exported.main([str(path), "--actions", "30"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["compiled", "numpy", "jax.export", "onnx"]
    for _, microseconds, difference in rows:
        assert float(microseconds) > 0
        assert float(difference) <= 1e-5


def test_a_folder_with_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert cli.main(["export", str(tmp_path / "run"), "-o", str(tmp_path)]) == 2
    assert "holds something else, such as notes.txt" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
