"""Recording what a trained agent does, and saying what recorded data holds."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import numpy as np

from acme_ext import specs
from acme_ext.acting.actor import Actor
from acme_ext.acting.exploration import uniform_noise
from acme_ext.acting.inference import LocalInference
from acme_ext.acting.loop import EnvironmentLoop
from acme_ext.acting.policy import Context, Policy
from acme_ext.acting.variables import VariableClient
from acme_ext.data.format import Folder, FolderWriter
from acme_ext.data.recorder import Recorder
from acme_ext.errors import UsageError
from acme_ext.launch.runs import settings
from acme_ext.launch.runs.evaluation import load_run
from acme_ext.launch.runs.identity import about
from acme_ext.types import EnvironmentSpec, Params, Tree

Behaviour = Literal["evaluation", "training", "random"]


def record_run(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    steps: int,
    policy: Behaviour = "evaluation",
    config: Mapping[str, str] | None = None,
    num_envs: int = 8,
    seed: int = 0,
    best: bool = False,
    on_steps: Callable[[int], None] = lambda steps: None,
) -> Folder:
    """Records what the agent of a run does in its environment, in whole episodes; an existing folder is added to.

    Args:
        path: the run directory; its latest good checkpoint acts.
        out: the folder.
        steps: environment steps, at least; episodes are finished.
        policy: how it acts: as in evaluation, as in training with its exploration, or uniformly at random.
        config: settings of the agent that aren't the run's, as text, such as another `noise_stddev`: only those that
            say how it acts.
        num_envs: environments stepped together.
        seed: of environments and policy; with the run's, so that other seeds give other data.
        best: the parameters of the run's best evaluation act, in place of the last ones.
        on_steps: told of the steps recorded so far, now and then.

    Raises:
        UsageError: see `launch.load` and `FolderWriter`; or a setting changes what was learned, or what acts
            at random.
    """
    if config and policy == "random":
        raise UsageError(f"random actions have no settings: leave out {', '.join(config)}.")
    run = load_run(path, best=best)
    experiment = run.experiment
    agent = experiment.builder.make_agent(run.spec)
    if config:
        experiment = dataclasses.replace(experiment, builder=settings.configure(experiment.builder, config))
        learned, agent = agent, experiment.builder.make_agent(run.spec)
        if _shapes(agent) != _shapes(learned):
            changed = ", ".join(f"{name}={value}" for name, value in config.items())
            raise UsageError(f"what this run learned doesn't fit {changed}: only how the agent acts can be set here.")
    writer = FolderWriter(out, run.spec, about(experiment, run_steps=run.steps, policy=policy))
    environment = experiment.make_environment(num_envs, part=1 + seed)
    key = jax.random.fold_in(experiment.key("actor"), 1 + seed)
    acting = {"evaluation": agent.evaluation_policy, "training": agent.policy, "random": random_policy(run.spec)}
    ranks = np.arange(num_envs, dtype=np.float32) / max(1, num_envs - 1)
    inference = LocalInference(acting[policy], VariableClient(run.source), key, num_envs, ranks)
    recorder = Recorder(writer)
    actor = Actor(inference, num_envs=num_envs, writer=recorder)
    actor.update(wait=True)
    actor.environment_steps = run.steps  # where the schedules of exploration were
    loop = EnvironmentLoop(environment, actor, should_update=False)
    try:
        while writer.steps < steps:
            loop.step()
            on_steps(writer.steps)
    finally:
        environment.close()
        recorder.close()
    return Folder(out)


def _shapes(agent: Any) -> Tree:
    """Returns shape and type of all that the agent's learner keeps."""
    return jax.tree.map(lambda x: (x.shape, x.dtype), agent.core.abstract_state())


def random_policy(spec: EnvironmentSpec) -> Policy:
    """Returns the policy that takes each action with the same probability, or density."""

    def apply(params: Params, context: Context, observation: Tree, state: Tree):
        del params, observation
        if specs.is_discrete(spec):
            count = specs.num_actions(spec, "The random policy")
            return jax.vmap(lambda key: jax.random.randint(key, (), 0, count))(context.key), state, ()
        return uniform_noise(context.key, specs.action_size(spec, "The random policy")), state, ()

    return Policy(apply)


def describe(folder: Folder) -> list[str]:
    """Returns what a folder of recorded data holds, in lines; every shard is read and checked.

    Raises:
        UsageError: a shard is damaged and not left out, or there is none.
    """
    folder.leave_out_damaged()
    damaged = list(folder.damaged)
    lengths = np.array([episode.steps for episode in folder.episodes()])
    if not len(lengths):
        raise UsageError(f"{folder.path} has no whole episode yet.")
    returns, manifest = folder.returns, folder.manifest
    lines = [
        f"environment  {manifest['environment']} {manifest['environment_options'] or ''}".rstrip(),
        f"by           {manifest['agent']}, {manifest.get('policy', 'training')} policy",
        f"holds        {folder.steps:,} steps in {len(lengths):,} episodes, {len(folder.shards)} shards; "
        + ("all good" if not damaged else f"{len(damaged)} damaged left out"),
        *damaged,
    ]
    for what, values in (("returns", returns), ("lengths", lengths)):
        least, middle, most = np.percentile(values, (0, 50, 100))
        lines.append(f"{what:<12} mean {values.mean():.4g}, least {least:.4g}, median {middle:.4g}, most {most:.4g}")
    counts, edges = np.histogram(returns, bins=10)
    for count, low, high in zip(counts, edges, edges[1:], strict=False):
        bar = "#" * round(40 * count / max(counts.max(), 1))
        lines.append(f"{low:>12.4g} to {high:<10.4g} {count:>6}  {bar}".rstrip())
    return lines
