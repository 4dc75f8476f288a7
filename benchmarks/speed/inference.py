"""`python -m benchmarks.speed.inference`: compares local inference, an inference server and a bare loop.

The bare loop is the limit: one process that steps all environments and calls the compiled policy, without actors. With
`--still`, the environments' steps take almost no time, so only acting is measured: the policy, and how it is called.
"""

import argparse
import contextlib
import dataclasses
import functools
import itertools
import multiprocessing
import os
import pathlib
import pickle
import shlex
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import dm_env
import numpy as np
from dm_env import specs as dm_specs

from acme_ext.envs.base import BatchedEnvironment
from acme_ext.envs.specs import DISCOUNT, REWARD
from benchmarks.shared import report

_RESULTS = pathlib.Path(__file__).parents[1] / "results"
_WAIT_S = 120  # seconds to wait for a message from a process
_VERSION = 1  # version of the parameters, which don't change
_TOKEN = bytes(32)  # the server's token


@dataclasses.dataclass(frozen=True)
class Model:
    """A builder and its environment."""

    name: str
    environment: str
    shape: tuple[int, ...]  # of an observation
    dtype: str
    still: bool = False  # environments with constant timesteps, see `Still`

    def builder(self) -> Any:
        from acme_ext import builders

        if self.name.startswith("mlp"):
            return builders.DQN()
        if self.name == "cnn":
            return builders.DQN().for_environment("atari:Pong")
        impala = builders.IMPALA().for_environment("atari:Pong")
        return dataclasses.replace(
            impala, config=dataclasses.replace(impala.config, core_size=256), torso="residual", core="lstm"
        )

    def make(self, num_envs: int, seed: int = 0) -> BatchedEnvironment:
        """Returns a batch of the model's environments."""
        if self.still:
            return Still(self, num_envs)
        from acme_ext import envs

        return envs.make(self.environment, num_envs=num_envs, seed=seed)

    @property
    def factory(self) -> Any:
        """The environment argument for an experiment."""
        return functools.partial(make_still, self) if self.still else self.environment


MODELS = {
    "mlp": Model("mlp", "gym:CartPole-v1", (4,), "float32"),
    "mlp-acrobot": Model("mlp-acrobot", "gym:Acrobot-v1", (6,), "float32"),
    "cnn": Model("cnn", "envpool:Pong-v5", (84, 84, 4), "uint8"),
    "deep-lstm": Model("deep-lstm", "envpool:Pong-v5", (84, 84, 4), "uint8"),
}
"""The models: DQN's MLP 64x64 in two environments, DQN's Nature network, and IMPALA's deep residual network with an
LSTM of 256 units. In Gymnasium, stepping one Acrobot takes as long as stepping 32 CartPole environments.
"""


class Still(BatchedEnvironment):
    """Environments with constant timesteps, whose steps take almost no time."""

    def __init__(self, model: Model, num_envs: int):
        self.num_envs, self._model = num_envs, model
        observation = np.zeros((num_envs, *model.shape), model.dtype)
        ones, zeros = np.ones(num_envs, np.float32), np.zeros(num_envs, np.float32)
        self._first = dm_env.TimeStep(np.full(num_envs, dm_env.StepType.FIRST, np.uint8), zeros, ones, observation)
        self._mid = self._first._replace(step_type=np.full(num_envs, dm_env.StepType.MID, np.uint8))

    def reset(self) -> dm_env.TimeStep:
        return self._first

    def step(self, actions: Any) -> dm_env.TimeStep:
        return self._mid

    def observation_spec(self) -> dm_specs.Array:
        return dm_specs.Array(self._model.shape, np.dtype(self._model.dtype), "observation")

    def action_spec(self) -> dm_specs.DiscreteArray:
        return dm_specs.DiscreteArray(6)

    def close(self) -> None:
        pass


class StillOne(dm_env.Environment):
    """A single environment like those of `Still`, for its specs."""

    def __init__(self, model: Model):
        self._batch = Still(model, 1)

    def reset(self) -> dm_env.TimeStep:
        return dm_env.restart(self._batch.reset().observation[0])

    def step(self, action: Any) -> dm_env.TimeStep:
        return dm_env.transition(0.0, self._batch.reset().observation[0])

    def observation_spec(self) -> dm_specs.Array:
        return self._batch.observation_spec()

    def action_spec(self) -> dm_specs.DiscreteArray:
        return self._batch.action_spec()


def make_still(model: Model, seed: int, evaluation: bool) -> dm_env.Environment:
    """Makes a `StillOne`; an environment factory."""
    return StillOne(model)


class Spec(NamedTuple):
    """The specs of a model's environment; unlike `acme.specs`, it needs no slow imports."""

    observations: Any
    actions: Any
    rewards: Any = REWARD
    discounts: Any = DISCOUNT


class Figures(NamedTuple):
    """The results of a measurement."""

    rate: float  # environment steps per second, of all actors
    cpu_s: float = 0.0  # CPU seconds of the actors' processes per 1,000 steps
    p50_ms: float = 0.0  # median latency of a request for actions
    p99_ms: float = 0.0  # its 99th percentile
    of_bare: float = 1.0  # rate relative to the bare loop's
    of_local: float = 1.0  # rate relative to that of actors that apply the policy
    fill: float = 1.0  # fraction of the server's batches that is not padding
    compilations: int = 0  # in the server, after it began to serve


def spec_of(model: Model) -> Spec:
    with contextlib.closing(model.make(1)) as environment:
        return Spec(environment.observation_spec(), environment.action_spec())


def parameters(model: Model) -> Any:
    """Returns the initial parameters of the model's policy."""
    import jax

    core = model.builder().make_agent(spec_of(model)).core
    return core.variables(jax.jit(core.init)(jax.random.key(0)))["policy"]


def raw_policy(model: Model, num_envs: int) -> Any:
    """Returns a compiled policy, written by hand: `(tick, timestep) -> action, extras`, as NumPy arrays."""
    import jax
    import jax.numpy as jnp

    from acme_ext.acting.policy import Context
    from acme_ext.utils import compiling

    policy, params = model.builder().make_agent(spec_of(model)).policy, parameters(model)

    def act(params, keys, tick, reward, observation, state):
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys, tick)
        return policy.apply(params, Context(keys, tick, jnp.zeros(num_envs), reward), observation, state)

    apply = compiling.jit(act, threaded=compiling.is_convolutional(params))
    keys, state = jax.random.split(jax.random.key(0), num_envs), policy.init_state(num_envs)

    def step(tick: int, timestep: dm_env.TimeStep) -> tuple[Any, Any]:
        nonlocal state
        action, state, extras = apply(params, keys, np.int32(tick), timestep.reward, timestep.observation, state)
        return np.asarray(action), jax.tree.map(np.asarray, extras)

    return step


class Bare:
    """A bare loop of the environments and the compiled policy."""

    def __init__(self, model: Model, num_envs: int):
        self._policy, self._environment = raw_policy(model, num_envs), model.make(num_envs)
        self._timestep, self._ticks = self._environment.reset(), itertools.count()

    def step(self) -> int:
        self._timestep = self._environment.step(self._policy(next(self._ticks), self._timestep)[0])
        return self._environment.num_envs

    def go(self, seconds: float) -> Figures:
        return Figures(_rate(self.step, seconds))

    def close(self) -> None:
        self._environment.close()


def core(model: Model, num_envs: int, seconds: float, rounds: int) -> tuple[float, float]:
    """Returns the steps per second of `LocalInference` on one timestep, and the median ratio to the raw policy's.

    Both are measured in turns.
    """
    import jax

    from acme_ext.acting.inference import LocalInference
    from acme_ext.acting.variables import VariableClient

    params = parameters(model)
    source = type("Source", (), {"get_variables": lambda self, names: [params]})()
    policy = model.builder().make_agent(spec_of(model)).policy
    inference = LocalInference(policy, VariableClient(source), jax.random.key(0), num_envs)  # type: ignore[arg-type]
    raw, ticks, timestep = raw_policy(model, num_envs), itertools.count(), Still(model, num_envs).step(None)

    def ours() -> int:
        inference.step(0, timestep)
        return num_envs

    def theirs() -> int:
        raw(next(ticks), timestep)
        return num_envs

    pairs = [(_rate(ours, seconds / rounds), _rate(theirs, seconds / rounds)) for _ in range(rounds)]
    return statistics.median(one for one, _ in pairs), statistics.median(one / other for one, other in pairs)


def _rate(step: Any, seconds: float) -> float:
    for _ in range(3):
        step()
    taken, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        taken += step()
    return taken / (time.perf_counter() - start)


class _World:
    """A stand-in for the learner and the coordinator of an inference server."""

    def __init__(self, params: Any):
        import jax

        self._payload = pickle.dumps(jax.device_get(params))

    def variables(self, held: int) -> tuple[int, bytes | None]:
        return _VERSION, self._payload if held < _VERSION else None

    def enter(self, name: str) -> int:
        return 0

    @property
    def futures(self) -> "_World":
        return self

    def report(self, *_: Any) -> Future:
        from acme_ext.launch.engines.program.nodes.reports import Orders

        answer: Future = Future()
        answer.set_result(tuple(Orders(False, 0)))
        return answer


def _serve(model: Model, actors: int, num_envs: int, callers: int, pipe: Any) -> None:
    """Runs a server's process: it serves until it is told to stop, and then reports statistics of its batches."""
    _quiet()
    from acme_ext.launch.engines.program.nodes.inference import InferenceNode
    from acme_ext.launch.runs.experiment import Experiment

    experiment = Experiment(model.builder(), model.factory, steps=1, num_envs=num_envs, run_dir=os.devnull)
    world = _World(parameters(model))
    spec = experiment.make_spec()
    node = InferenceNode(experiment, spec, actors, [None], world, world, callers=callers, experience=True, token=_TOKEN)
    compiled = node.compilations()
    pipe.send(node.port())
    pipe.recv()
    rows, padded = node.fill()
    pipe.send((rows / max(1, padded), node.compilations() - compiled))
    os._exit(0)  # its threads still wait for requests


def _act(model: Model, index: int, num_envs: int, callers: int, port: int | None, pipe: Any) -> None:
    """Runs an actor's process: it acts for some seconds on request, and reports its rate."""
    _quiet()
    import jax

    from acme_ext.acting.actor import Actor
    from acme_ext.acting.inference import LocalInference
    from acme_ext.acting.loop import EnvironmentLoop
    from acme_ext.acting.remote import RemoteInference
    from acme_ext.acting.variables import VariableClient
    from acme_ext.utils.calls import RemoteCall

    latencies: list[float] = []

    class Timed:
        """An inference that measures the time from the beginning of a request until its actions are returned."""

        def __init__(self, inference: Any):
            self._inference, self._begun = inference, 0.0

        def begin(self, steps: int, timestep: dm_env.TimeStep) -> None:
            self._begun = time.perf_counter()
            self._inference.begin(steps, timestep)

        def step(self, steps: int, timestep: dm_env.TimeStep) -> Any:
            acted = self._inference.step(steps, timestep)
            latencies.append(time.perf_counter() - self._begun)
            return acted

        def update(self, wait: bool = False) -> None:
            self._inference.update(wait)

    actors: list[Actor] = []
    loops: list[EnvironmentLoop] = []
    for caller, mine in enumerate(np.array_split(np.arange(num_envs), callers)):
        if port is None:
            params = parameters(model)
            source = type("Source", (), {"get_variables": lambda self, names, params=params: [params]})()
            policy, key = model.builder().make_agent(spec_of(model)).policy, jax.random.key(index)
            inference: Any = LocalInference(policy, VariableClient(source), key, len(mine))  # type: ignore[arg-type]
        else:
            call = RemoteCall(lambda: ("localhost", port), _end_with_parent, token=_TOKEN, first=(index, caller, 0))
            inference = RemoteInference(call, with_state=False)
        environment = model.make(len(mine), seed=1 + index * callers + caller)
        actors.append(Actor(Timed(inference), num_envs=len(mine)))  # type: ignore[arg-type]
        loops.append(EnvironmentLoop(environment, actors[-1]))

    def step() -> int:
        taken = 0
        for loop, actor in zip(loops, actors, strict=True):
            taken += loop.step()
            actor.begin()  # its actions are computed while the others step
        return taken

    while True:
        for _ in range(3):
            step()
        pipe.send(None)
        seconds = pipe.recv()
        step()  # uses the actions that were requested before the wait
        latencies.clear()
        start, cpu, taken = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - start < seconds:
            taken += step()
        pipe.send((taken / (time.perf_counter() - start), time.process_time() - cpu, taken, latencies))


def _end_with_parent() -> None:
    if not multiprocessing.parent_process().is_alive():  # type: ignore[union-attr]
        os._exit(1)


def _quiet() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


class Crew:
    """The processes of one arrangement: a number of actors with several environments each, and optionally a server."""

    def __init__(self, model: Model, num_envs: int, actors: int, arrangement: str):
        self._context = multiprocessing.get_context("spawn")
        callers = min(2, num_envs) if arrangement == "server" else 1
        self._processes: list[Any] = []
        self._server, port = None, None
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            if arrangement == "server":
                self._server = self._start(_serve, model, actors, num_envs, callers)
                port = _receive(self._server)
            self._actors = [self._start(_act, model, index, num_envs, callers, port) for index in range(actors)]
            for pipe in self._actors:
                _receive(pipe)
            stack.pop_all()

    def go(self, seconds: float) -> Figures:
        """Lets all actors act for `seconds`."""
        for pipe in self._actors:
            pipe.send(seconds)
        told = [_receive(pipe) for pipe in self._actors]
        for pipe in self._actors:
            _receive(pipe)
        p50, p99 = np.percentile(np.concatenate([one[3] for one in told]) * 1e3, [50, 99])
        cpu_s = 1e3 * sum(one[1] for one in told) / sum(one[2] for one in told)
        return Figures(sum(one[0] for one in told), cpu_s, float(p50), float(p99))

    def served(self) -> tuple[float, int]:
        """Returns the fraction of the server's batches that was not padding, and its number of compilations while
        serving.
        """
        assert self._server is not None
        self._server.send(None)
        return _receive(self._server)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def _start(self, function: Any, *arguments: Any) -> Any:
        pipe, theirs = self._context.Pipe()
        self._processes.append(self._context.Process(target=function, args=(*arguments, theirs)))
        self._processes[-1].start()
        theirs.close()
        return pipe


def measure(model: Model, num_envs: int, actors: int, seconds: float, rounds: int) -> dict[str, Figures]:
    """Measures the bare loop and both arrangements in turns, because the speed of a shared machine varies.

    The figures and the ratios are medians over the rounds.
    """
    found: dict[str, list[Figures]] = {"bare loop": [], "actor": [], "server": []}
    with contextlib.ExitStack() as stack:
        bare = stack.enter_context(contextlib.closing(Bare(model, num_envs * actors)))
        local, remote = (
            stack.enter_context(contextlib.closing(Crew(model, num_envs, actors, kind))) for kind in ("actor", "server")
        )
        for _ in range(rounds):
            for rows, what in zip(found.values(), (bare, local, remote), strict=True):
                rows.append(what.go(seconds / rounds))
        fill, compilations = remote.served()

    def ratio(kind: str, other: str) -> float:
        return statistics.median(a.rate / b.rate for a, b in zip(found[kind], found[other], strict=True))

    return {
        kind: Figures(*np.median(rows, axis=0))._replace(
            of_bare=ratio(kind, "bare loop"), of_local=ratio(kind, "actor"), fill=fill, compilations=compilations
        )
        for kind, rows in found.items()
    }


def _receive(pipe: Any) -> Any:
    if not pipe.poll(_WAIT_S):
        raise TimeoutError("a process of the measurement did not answer in time")
    return pipe.recv()  # raises EOFError if the process has died


def page(cores: Sequence[str], rows: Sequence[str], still: bool, command: str, facts: Mapping[str, Any]) -> str:
    """Returns the results as Markdown; `facts` are those about the machine."""
    environments = "CartPole or Acrobot with the MLP, EnvPool's Pong with the others"
    if still:
        environments = "Environments that cost nothing"
    lines = [
        "# Central inference beside local inference",
        "",
        f"{environments}, on {os.cpu_count()} cores: `{command}`.",
        "",
        "## The core alone",
        "",
        "`LocalInference`, which every local actor calls, and the raw policy: its compiled function as one would write",
        "it by hand, called in a loop. They take turns in short rounds.",
        "",
        "| model | environments | steps/s | of the raw policy |",
        "|---|--:|--:|--:|",
        *cores,
        "",
        "## Actors",
        "",
        "Each in a process of its own. The bare loop is one process that steps all the environments and calls the raw",
        "policy, one after the other. All three take turns in short rounds; figures and ratios are medians. Latency",
        "is of one request for the actions of an actor's environments (with a server: of half of them, while the other",
        "half steps). CPU is that of the actors' processes alone.",
        "",
        "| model | environments of an actor | actors | inference | steps/s | of the bare loop | of local | fill "
        "| p50 ms | p99 ms | actor CPU s for 1,000 steps | compiled while serving |",
        "|---|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        *rows,
        "",
        ", ".join(f"{name} {value}" for name, value in facts.items()) + ".",
        "",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints the table, and writes it to `benchmarks/results/inference.md`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.inference", description=main.__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 8, 32], metavar="N", help="environments per actor")
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of each measurement (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement (%(default)s)")
    parser.add_argument("--still", action="store_true", help="use environments whose steps take almost no time")
    parser.add_argument("--out", type=pathlib.Path, default=_RESULTS, metavar="DIR")
    options = parser.parse_args(arguments)
    facts, cores, rows = report.machine(), [], []
    for name in options.models:
        model = dataclasses.replace(MODELS[name], still=options.still)
        for num_envs in options.envs:
            rate, ratio = core(model, num_envs, options.seconds, options.rounds)
            cores.append(f"| {name} | {num_envs} | {rate:,.0f} | {ratio:.2f} |")
            print(cores[-1], flush=True)
        for num_envs, actors in itertools.product(options.envs, options.actors):
            found = measure(model, num_envs, actors, options.seconds, options.rounds)
            for kind, f in found.items():
                asked = f"{f.p50_ms:.2f} | {f.p99_ms:.2f} | {f.cpu_s:.3f}" if kind != "bare loop" else " | | "
                served = (f"{f.of_local:.2f}", f"{f.fill:.2f}", f.compilations) if kind == "server" else ("", "", "")
                rows.append(
                    f"| {name} | {num_envs} | {actors} | {kind} | {f.rate:,.0f} | {f.of_bare:.2f} | {served[0]} | "
                    f"{served[1]} | {asked} | {served[2]} |"
                )
            print("\n".join(rows[-3:]), flush=True)
    words = sys.argv[1:] if arguments is None else arguments
    command = shlex.join(["python", "-m", "benchmarks.speed.inference", *words])
    options.out.mkdir(parents=True, exist_ok=True)
    name = "inference-still.md" if options.still else "inference.md"
    (options.out / name).write_text(page(cores, rows, options.still, command, facts))


if __name__ == "__main__":
    main()
