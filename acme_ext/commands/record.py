"""Records the experience of a trained agent, and describes recorded data."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext import specs
from acme_ext.acting.actor import Actor
from acme_ext.acting.exploration import uniform_noise
from acme_ext.acting.inference import LocalInference
from acme_ext.acting.loop import EnvironmentLoop
from acme_ext.acting.policy import Context, Policy
from acme_ext.acting.variables import VariableClient
from acme_ext.commands.common import counted
from acme_ext.config.fields import check_seed
from acme_ext.data.format import Folder, FolderWriter
from acme_ext.data.recorder import Recorder
from acme_ext.errors import UsageError
from acme_ext.launch.runs.directory import check_outside
from acme_ext.launch.runs.evaluation import place_of
from acme_ext.launch.runs.identity import about
from acme_ext.launch.runs.trained import load
from acme_ext.ops import masking
from acme_ext.types import EnvironmentSpec, Params, Tree

Behaviour = Literal["evaluation", "training", "random"]


def record_run(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    steps: int,
    policy: Behaviour = "evaluation",
    config: Mapping[str, Any] | None = None,
    num_envs: int = 8,
    seed: int = 0,
    best: bool = False,
    on_steps: Callable[[int], None] = lambda steps: None,
) -> Folder:
    """Records complete episodes of a run's agent in its environment; if the folder exists, they are added to it.

    Args:
        path: the run directory; its latest undamaged checkpoint is used.
        out: the folder of the data.
        steps: minimum number of environment steps; recording stops after the episode that reaches it.
        policy: act as in evaluation, as in training with exploration, or uniformly at random.
        config: as in `launch.load`.
        num_envs: environments stepped in parallel.
        seed: seed of environments and policy. It is combined with the run's seed; other values give other data.
        best: use the parameters of the run's best evaluation instead of the newest ones.
        on_steps: called after each step with the number of steps recorded so far; an exception of it stops the
            recording, and the episodes that have ended are kept.

    Raises:
        UsageError: see `launch.load` and `FolderWriter`; or settings or `best` are given for the random policy, or
            `seed` is not in [0, 2**31).
    """
    check_seed(seed)
    if config and policy == "random":
        raise UsageError(f"random actions have no settings: leave out {', '.join(config)}.")
    if best and policy == "random":
        raise UsageError("random actions have no parameters: leave out --best.")
    rundir, _ = place_of(path)
    check_outside(out, rundir.path)
    run = load(path, config=config, best=best).loaded
    experiment = run.experiment
    agent = run.agent
    own = rundir.read_config()["seed"]  # the experiment's is another one, with `best`
    writer = FolderWriter(out, run.spec, about(experiment, seed=own, run_steps=run.steps, policy=policy))
    environment = experiment.make_environment(num_envs, part=1 + seed)
    key = jax.random.fold_in(experiment.key("actor"), 1 + seed)
    acting = {"evaluation": agent.evaluation_policy, "training": agent.policy, "random": random_policy(run.spec)}
    ranks = np.arange(num_envs, dtype=np.float32) / max(1, num_envs - 1)
    inference = LocalInference(acting[policy], VariableClient(run.source), key, num_envs, ranks)
    if policy == "evaluation":
        inference.core.brief(run.statistics)
    recorder = Recorder(writer)
    actor = Actor(inference, num_envs=num_envs, writer=recorder)
    actor.update(wait=True)
    actor.environment_steps = run.steps  # for exploration schedules
    loop = EnvironmentLoop(environment, actor, should_update=False)
    try:
        while writer.steps < steps:
            loop.step()
            on_steps(writer.steps)
    finally:
        environment.close()
        recorder.close()
    return Folder(out)


def random_policy(spec: EnvironmentSpec) -> Policy:
    """Returns a policy that samples actions uniformly, and only legal ones."""

    def apply(params: Params, context: Context, observation: Tree, state: Tree):
        del params
        if specs.is_discrete(spec):
            count = specs.num_actions(spec, "The random policy")
            if (legal := masking.legal_actions(observation)) is not None:
                logits = masking.masked(jnp.zeros(legal.shape), legal)
                return jax.vmap(jax.random.categorical)(context.key, logits), state, ()
            return jax.vmap(lambda key: jax.random.randint(key, (), 0, count))(context.key), state, ()
        return uniform_noise(context.key, specs.action_size(spec, "The random policy")), state, ()

    return Policy(apply)


def describe_recording(folder: Folder) -> list[str]:
    """Returns a description of a folder of recorded data, as lines; reads and checks every shard.

    Raises:
        UsageError: a shard is damaged and the folder doesn't skip damaged ones, or there is no complete episode.
    """
    folder.leave_out_damaged()
    damaged = list(folder.damaged)
    lengths = np.array([episode.steps for episode in folder.episodes()])
    folder.check_steps()
    returns, manifest = folder.returns, folder.manifest
    lines = [
        f"environment  {manifest['environment']} {manifest['environment_options'] or ''}".rstrip(),
        f"by           {manifest['agent']}, {manifest.get('policy', 'training')} policy",
        f"holds        {counted(folder.steps, 'step')} in {counted(len(lengths), 'episode')}, "
        f"{counted(len(folder.shards), 'shard')}; "
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
