"""Programs whose actors ask a server for their actions."""

import signal

import programs
import pytest

from acme_ext import builders
from acme_ext.builders import DQN
from acme_ext.errors import UsageError
from acme_ext.launch.runners import distributed
from acme_ext.launch.runners.program import Topology
from acme_ext.launch.runs import settings
from acme_ext.launch.runs.experiment import Evaluation, Experiment

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.mark.slow
@pytest.mark.parametrize("experience", ["actor", "server"])
def test_learns_and_goes_on(tmp_path, experience):
    def run(steps):
        texts = {name: str(value) for name, value in {**programs.FIELDS, "replay.prioritized": "true"}.items()}
        described = Experiment(
            DQN(settings.replace(DQN().config, texts)),
            "gym:lab_walk:LabWalk-v0",
            steps=steps,
            num_envs=4,
            evaluation=Evaluation(every=0, final_episodes=2),
            run_dir=str(tmp_path / "run"),
        )
        topology = Topology(actors=2, replay_shards=2, inference="server", experience=experience)
        return distributed.run_program(described, topology, on="threads", quiet=True)

    first = run(600)
    assert 600 <= first.environment_steps <= 680
    assert first.learner_steps > 0
    _, inserted, _ = programs.state(tmp_path / "run", shards=2)
    # Every step is in the replay; a restart of an environment takes no step.
    assert abs(inserted - first.environment_steps) <= 8
    second = run(900)
    assert second.learner_steps > first.learner_steps
    # What acted was never older than what the learner had a while ago.
    assert max(programs.rows(tmp_path / "run", "actor", "parameter_lag")) < second.learner_steps


@pytest.mark.slow
def test_recurrent_state_stays_on_the_server(tmp_path):
    config = settings.replace(
        builders.R2D2().config,
        {"replay.burn_in": "2", "replay.length": "6", "replay.period": "4", "batch_size": "4", "replay.min_size": "8"},
    )
    described = Experiment(
        builders.R2D2(config),
        "gym:lab_walk:LabWalk-v0",
        steps=400,
        num_envs=2,
        evaluation=Evaluation(every=0, final_episodes=2),
        run_dir=str(tmp_path / "run"),
    )
    topology = Topology(actors=2, inference="server", experience="server")
    result = distributed.run_program(described, topology, on="threads", quiet=True)
    assert result.learner_steps > 0


@pytest.mark.slow
def test_an_inference_server_that_dies_comes_back_and_the_actors_go_on(tmp_path, train):
    run = tmp_path / "run"
    program = train(run, 10**7, "--restart", "1", "--inference", "server", "--experience", "server", "--num-envs", "2")
    program.wait_for(lambda: program.steps() > 300)
    actors = [program.node(f"actor-{index}").pid for index in range(2)]
    program.node("inference").kill()
    program.wait_for(lambda: program.steps() > 900)
    assert [program.node(f"actor-{index}").pid for index in range(2)] == actors
    program.interrupt()
    code, _, err = program.end()
    assert code == 128 + signal.SIGINT
    assert "acme-ext: inference was killed by SIGKILL and is started again.\n" in err
    assert "acme-ext: restarts of nodes that had died: 1.\n" in err


@pytest.mark.slow
def test_an_inference_server_that_dies_for_good_ends_the_program_with_its_name(tmp_path, train):
    program = train(tmp_path / "run", 10**7, "--inference", "server", "--num-envs", "2")
    program.wait_for(lambda: program.steps() > 300)
    program.node("inference").kill()
    code, out, err = program.end()
    assert (code, out) == (1, "")
    assert "acme-ext: inference was killed by SIGKILL" in err


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"inference": "learner"}, "inference is 'learner': it must be one of actor, server"),
        ({"experience": "server"}, "experience on the server needs inference on the server"),
    ],
)
def test_wishes_that_cannot_be(wish, said):
    with pytest.raises(UsageError, match=said):
        Topology(**wish)
