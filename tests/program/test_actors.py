import jax
import numpy as np
from toys import Walk, toy

from acme_ext.builders.base import Agent
from acme_ext.launch import Checkpoints, Evaluation, Experiment
from acme_ext.launch.runners import distributed
from acme_ext.launch.runners.program import Topology
from acme_ext.utils.naming import named


def test_each_environment_of_a_program_has_its_own_seed_key_and_rank(tmp_path, monkeypatch, no_figures):
    seeds, made, make_actor = [], [], Agent.make_actor

    def factory(seed, evaluation):
        if not evaluation:
            seeds.append(seed)
        return Walk(seed)

    def kept(self, variables, key, **given):
        actor = make_actor(self, variables, key, **given)
        if not given.get("evaluation"):
            made.append((tuple(jax.random.key_data(key).tolist()), given["rank"], actor))
        return actor

    monkeypatch.setattr(Agent, "make_actor", kept)
    experiment = Experiment(
        toy(),
        named("walks", factory),
        steps=600,
        num_envs=2,
        run_dir=str(tmp_path / "run"),
        evaluation=Evaluation(every=0, final_episodes=1, num_envs=1),
        checkpoints=Checkpoints(every_s=0),
    )
    result = distributed.run_program(experiment, Topology(actors=2), on="threads", quiet=True)
    keys, ranks, actors = zip(*made, strict=True)
    assert len(set(keys)) == len(actors) == 2
    np.testing.assert_allclose(sorted(np.concatenate(ranks)), [0, 1 / 3, 2 / 3, 1], rtol=1e-6)
    assert len(set(seeds)) == len(seeds) >= 4, seeds
    # Exploration goes by the steps of all actors.
    assert min(actor.environment_steps for actor in actors) > 0.7 * result.environment_steps
