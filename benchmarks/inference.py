"""`python -m benchmarks.inference`: actors that apply the policy, and actors that ask a server, beside the bare policy.

Environments cost nothing here, so that all that is seen is acting: the policy, and how it is reached. The limit is the
compiled policy called in a loop by one process on all environments at once, without any actor.
"""

import argparse
import dataclasses
import functools
import itertools
import multiprocessing
import os
import pathlib
import pickle
import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np
from dm_env import specs as dm_specs

from acme_ext.envs.base import BatchedEnvironment
from acme_ext.envs.specs import DISCOUNT, REWARD

_RESULTS = pathlib.Path(__file__).parent / "results"
_WAIT_S = 120  # for the processes of a measurement
_VERSION = 1  # of the parameters, which don't change


@dataclasses.dataclass(frozen=True)
class Model:
    """A builder and what it sees."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def builder(self) -> Any:
        from acme_ext import builders

        if self.name == "mlp":
            return builders.DQN()
        if self.name == "cnn":
            return builders.DQN.for_environment("atari:Pong")
        impala = builders.IMPALA.for_environment("atari:Pong")
        return dataclasses.replace(impala, config=dataclasses.replace(impala.config, image_torso="deep", lstm_size=256))


MODELS = {
    "mlp": Model("mlp", (4,), "float32"),
    "cnn": Model("cnn", (84, 84, 4), "uint8"),
    "deep-lstm": Model("deep-lstm", (84, 84, 4), "uint8"),
}
"""DQN's MLP 64x64, DQN's Nature network, and IMPALA's deep residual network with an LSTM of 256."""


class Still(BatchedEnvironment):
    """Environments in which nothing ever happens, at no cost."""

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
    """One of them, for whoever wants its specs."""

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
    """An environment factory."""
    return StillOne(model)


class Spec(NamedTuple):
    """The specs of a Still environment; `acme.specs` would do, and imports more."""

    observations: Any
    actions: Any
    rewards: Any = REWARD
    discounts: Any = DISCOUNT


class Figures(NamedTuple):
    """What a measurement came to."""

    rate: float  # environment steps per second, of all actors
    cpu_s: float = 0.0  # of the actors' processes, for 1,000 steps
    p50_ms: float = 0.0  # of one request for actions
    p99_ms: float = 0.0
    fill: float = 1.0  # share of the server's batches that is no padding
    compilations: int = 0  # in the server, after it began to serve


def spec_of(model: Model) -> Spec:
    environment = Still(model, 1)
    return Spec(environment.observation_spec(), environment.action_spec())


def parameters(model: Model) -> Any:
    """Returns what the model's policy is applied with, at its start."""
    import jax

    core = model.builder().make_core(spec_of(model))
    return core.variables(jax.jit(core.init)(jax.random.key(0)))["policy"]


def bare(model: Model, num_envs: int, seconds: float) -> float:
    """Returns the steps per second of the compiled policy in a loop, with nothing around it."""
    import jax
    import jax.numpy as jnp

    from acme_ext.acting.policy import Context
    from acme_ext.utils import compiling

    policy, params = model.builder().make_policy(spec_of(model)), parameters(model)
    apply = compiling.jit(policy.apply, convolutional=compiling.is_convolutional(params))
    keys, zeros = jax.random.split(jax.random.key(0), num_envs), jnp.zeros(num_envs)
    context = Context(keys, jnp.int32(0), zeros, zeros)
    observation, state = Still(model, num_envs).reset().observation, policy.init_state(num_envs)

    def step() -> int:
        nonlocal state
        action, state, extras = apply(params, context, observation, state)
        jax.device_get((action, extras))
        return num_envs

    return _rate(step, seconds)


def _rate(step: Any, seconds: float) -> float:
    for _ in range(3):
        step()
    taken, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        taken += step()
    return taken / (time.perf_counter() - start)


class _World:
    """The learner and the coordinator of a server that has neither."""

    def __init__(self, params: Any):
        import jax

        self._payload = pickle.dumps(jax.device_get(params))

    def variables(self, held: int) -> tuple[int, bytes | None]:
        return _VERSION, self._payload if held < _VERSION else None

    def enter(self, name: str) -> int:
        return 0

    def report(self, *_: Any) -> tuple:
        from acme_ext.launch.nodes.reports import Orders

        return tuple(Orders(False, 0))


def _serve(model: Model, actors: int, num_envs: int, callers: int, pipe: Any) -> None:
    """A server's process: serves until it is told to stop, and tells what its batches were."""
    _quiet()
    import courier

    from acme_ext.launch.experiment import Experiment
    from acme_ext.launch.nodes.inference import InferenceNode

    experiment = Experiment(
        model.builder(), functools.partial(make_still, model), steps=1, num_envs=num_envs, run_dir=os.devnull
    )
    world = _World(parameters(model))
    node = InferenceNode(experiment, actors, [None], world, world, callers=callers, experience=True)
    compiled = node.compilations()
    server = courier.Server(thread_pool_size=actors * callers + 2)
    server.Bind("act", node.act)
    server.Start()
    pipe.send(f"localhost:{server.port}")
    pipe.recv()
    rows, padded = node.fill()
    pipe.send((rows / max(1, padded), node.compilations() - compiled))
    os._exit(0)  # its threads wait for requests that don't come


def _act(model: Model, index: int, num_envs: int, callers: int, address: str | None, seconds: float, pipe: Any) -> None:
    """An actor's process: acts for some time, together with the others, and tells how fast."""
    _quiet()
    import threading

    import jax

    from acme_ext.acting.actor import Actor
    from acme_ext.acting.inference import LocalInference
    from acme_ext.acting.loop import EnvironmentLoop
    from acme_ext.acting.remote import RemoteInference
    from acme_ext.acting.variables import VariableClient

    latencies: list[float] = []

    class Timed:
        """An inference whose steps are timed."""

        def __init__(self, inference: Any):
            self._inference = inference

        def step(self, steps: int, timestep: dm_env.TimeStep) -> Any:
            start = time.perf_counter()
            acted = self._inference.step(steps, timestep)
            latencies.append(time.perf_counter() - start)
            return acted

        def update(self, wait: bool = False) -> None:
            self._inference.update(wait)

    loops: list[EnvironmentLoop] = []
    clients: list[Any] = []
    for caller, mine in enumerate(np.array_split(np.arange(num_envs), callers)):
        if address is None:
            params = parameters(model)
            source = type("Source", (), {"get_variables": lambda self, names, params=params: [params]})()
            policy, key = model.builder().make_policy(spec_of(model)), jax.random.key(index)
            inference: Any = LocalInference(policy, VariableClient(source), key, len(mine))  # type: ignore[arg-type]
        else:
            import courier

            clients.append(courier.Client(address))  # which is shut down when nobody holds it
            act = functools.partial(clients[-1].futures.act, index, caller, 0)
            inference = RemoteInference(act, with_state=False)
        loops.append(EnvironmentLoop(Still(model, len(mine)), Actor(Timed(inference), num_envs=len(mine))))  # type: ignore[arg-type]
    for loop in loops:
        for _ in range(3):
            loop.step()
    pipe.send(None)
    pipe.recv()
    latencies.clear()
    end = time.perf_counter() + seconds
    taken = [0] * len(loops)

    def drive(part: int) -> None:
        while time.perf_counter() < end:
            taken[part] += loops[part].step()

    start, cpu = time.perf_counter(), time.process_time()
    threads = [threading.Thread(target=drive, args=(part,)) for part in range(1, len(loops))]
    for thread in threads:
        thread.start()
    drive(0)
    for thread in threads:
        thread.join()
    pipe.send((sum(taken) / (time.perf_counter() - start), time.process_time() - cpu, sum(taken), latencies))
    os._exit(0)


def _quiet() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def measure(model: Model, num_envs: int, actors: int, arrangement: str, seconds: float) -> Figures:
    """Measures so many actors of so many environments each, in one arrangement."""
    context = multiprocessing.get_context("spawn")
    callers = min(2, num_envs) if arrangement == "server" else 1
    processes, server, address = [], None, None
    try:
        if arrangement == "server":
            server, theirs = context.Pipe()
            processes.append(context.Process(target=_serve, args=(model, actors, num_envs, callers, theirs)))
            processes[-1].start()
            theirs.close()
            address = _receive(server)
        pipes = []
        for index in range(actors):
            pipe, theirs = context.Pipe()
            arguments = (model, index, num_envs, callers, address, seconds, theirs)
            processes.append(context.Process(target=_act, args=arguments))
            processes[-1].start()
            theirs.close()
            pipes.append(pipe)
        for pipe in pipes:
            _receive(pipe)
        for pipe in pipes:
            pipe.send(None)
        told = [_receive(pipe) for pipe in pipes]
        fill, compilations = 1.0, 0
        if server is not None:
            server.send(None)
            fill, compilations = _receive(server)
    finally:
        for process in processes:
            process.kill()
            process.join()
    latencies = np.concatenate([one[3] for one in told]) * 1e3
    p50, p99 = np.percentile(latencies, [50, 99])
    cpu_s = 1e3 * sum(one[1] for one in told) / sum(one[2] for one in told)
    return Figures(sum(one[0] for one in told), cpu_s, float(p50), float(p99), fill, compilations)


def _receive(pipe: Any) -> Any:
    if not pipe.poll(_WAIT_S):
        raise TimeoutError("a process of the measurement did not answer")
    return pipe.recv()  # EOFError if it has died


def page(rows: Sequence[str], command: str) -> str:
    """Returns the results as markdown."""
    lines = [
        "# Central inference beside local inference",
        "",
        f"Environments that cost nothing, on {os.cpu_count()} cores, everything in processes of its own: `{command}`.",
        "The bare policy is one compiled call after the other on all the environments at once, in one process.",
        "Latency is of one request for the actions of an actor's environments (with a server: of half of them, while",
        "the other half steps). CPU is that of the actors' processes alone.",
        "",
        "| model | environments of an actor | actors | inference | steps/s | of the bare policy | fill | p50 ms "
        "| p99 ms | actor CPU s for 1,000 steps | compiled while serving |",
        "|---|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|",
        *rows,
        "",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints the table, and writes it to `benchmarks/results/inference.md`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference", description=main.__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 8, 32], metavar="N", help="of an actor")
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (%(default)s)")
    parser.add_argument("--out", type=pathlib.Path, default=_RESULTS, metavar="DIR")
    options = parser.parse_args(arguments)
    rows = []
    for name, num_envs, actors in itertools.product(options.models, options.envs, options.actors):
        model = MODELS[name]
        # Before and after: a shared machine is fast in one minute and slow in the next.
        limits = [bare(model, num_envs * actors, options.seconds / 2)]
        found = {kind: measure(model, num_envs, actors, kind, options.seconds) for kind in ("actor", "server")}
        limits.append(bare(model, num_envs * actors, options.seconds / 2))
        limit = statistics.mean(limits)
        rows.append(f"| {name} | {num_envs} | {actors} | bare policy | {limit:,.0f} | 1 | | | | | |")
        for kind, f in found.items():
            fill, compiled = (f"{f.fill:.2f}", f"{f.compilations}") if kind == "server" else ("", "")
            rows.append(
                f"| {name} | {num_envs} | {actors} | {kind} | {f.rate:,.0f} | {f.rate / limit:.2f} | {fill} | "
                f"{f.p50_ms:.2f} | {f.p99_ms:.2f} | {f.cpu_s:.3f} | {compiled} |"
            )
        print("\n".join(rows[-3:]), flush=True)
    command = f"python -m benchmarks.inference --seconds {options.seconds:g}"
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "inference.md").write_text(page(rows, command))


if __name__ == "__main__":
    main()
