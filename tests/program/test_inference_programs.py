"""Programs whose actors ask a server for their actions."""

import signal

import programs
import pytest

from acme_ext import builders, launch
from acme_ext.builders import DQN
from acme_ext.config.assignments import replace_fields
from acme_ext.errors import UsageError
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.schedule import Evaluation
from acme_ext.utils import loggers

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experience", "actors", "servers"),
    [*(pytest.param(who, 2, 1, marks=pytest.mark.release) for who in ("actor", "server")), ("server", 4, 2)],
)
def test_learns_and_goes_on(tmp_path, experience, actors, servers):
    def run(steps):
        texts = {name: str(value) for name, value in {**programs.FIELDS, "replay.prioritized": "true"}.items()}
        described = Experiment(
            DQN(replace_fields(DQN().config, texts)),
            "gym:lab_walk:LabWalk-v0",
            steps=steps,
            num_envs=4,
            evaluation=Evaluation(every=0, final_episodes=2),
            run_dir=str(tmp_path / "run"),
        )
        options = {"replay_shards": 2, "inference": "server", "experience": experience}
        return launch.run(described, launch.Threads(actors, inference_servers=servers, **options), quiet=True)

    first = run(600)
    assert 600 <= first.environment_steps <= 600 + 40 * actors
    assert first.learner_steps > 0
    _, inserted, _ = programs.state(tmp_path / "run", shards=2)
    # Every step is in the replay; a restart of an environment takes no step.
    assert abs(inserted - first.environment_steps) <= 4 * actors
    served = of_server(tmp_path / "run")
    assert set(served) == set(range(servers))
    assert all(steps[-1] > 0 for steps in served.values())
    second = run(900)
    assert second.learner_steps > first.learner_steps
    # What acted was never older than what the learner had a while ago.
    assert max(programs.rows(tmp_path / "run", "actor", "parameter_lag")) < second.learner_steps


def of_server(run):
    """Returns the rows of `inference_steps` by the number of the server."""
    path = run / "logs/inference.csv"
    if not path.is_file():
        return {}
    log = loggers.read_csv(path)  # once, for it grows
    return {int(number): log["inference_steps"][log["server"] == number] for number in set(log.get("server", ()))}


@pytest.mark.release
def test_recurrent_state_stays_on_the_server(tmp_path):
    config = replace_fields(
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
    on = launch.Threads(actors=2, inference="server", experience="server")
    result = launch.run(described, on, quiet=True)
    assert result.learner_steps > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [["inference"], pytest.param(["inference-0", "inference-1"], marks=pytest.mark.release)]
)
def test_an_inference_server_that_dies_comes_back_and_the_actors_go_on(tmp_path, train, names):
    run, last = tmp_path / "run", len(names) - 1
    options = ["--actors", str(2 * len(names)), "--inference-servers", str(len(names)), "--restart", "1"]
    program = train(run, 10**7, *options, "--inference", "server", "--experience", "server", "--num-envs", "2")
    program.wait_for(lambda: program.steps() > 300 and len(of_server(run)) == len(names))
    lasting = [f"actor-{index}" for index in range(2 * len(names))] + names[:last]
    pids = [program.node(name).pid for name in lasting]
    program.node(names[last]).kill()
    program.wait_for(lambda: "is started again" in program.err())
    served, steps = len(of_server(run)[last]), program.steps()
    program.wait_for(lambda: len(of_server(run)[last]) > served + 1)  # its actors ask it again
    program.wait_for(lambda: program.steps() > steps + 600)
    assert [program.node(name).pid for name in lasting] == pids
    program.interrupt()
    code, _, err = program.end()
    assert code == 128 + signal.SIGINT
    assert f"acme-ext: {names[last]} was killed by SIGKILL and is started again.\n" in err
    assert "acme-ext: restarts of nodes that had died: 1.\n" in err


@pytest.mark.release
def test_an_inference_server_that_dies_for_good_ends_the_program_with_its_name(tmp_path, train):
    program = train(tmp_path / "run", 10**7, "--inference", "server", "--num-envs", "2")
    program.wait_for(lambda: program.steps() > 300)
    program.node("inference").kill()
    code, out, err = program.end()
    assert (code, out) == (1, "")
    assert "acme-ext: inference was killed by SIGKILL" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"inference": "learner"}, "inference is 'learner': it must be one of actor, server"),
        ({"experience": "server"}, "experience on the server needs inference on the server"),
        ({"inference": "server", "inference_servers": 0}, "inference_servers is 0: it must be at least 1"),
        (
            {"inference": "server", "inference_servers": 5},
            "5 inference servers need as many actors .*, and there are 4",
        ),
        (
            {"inference_servers": 2},
            "inference_servers is 2: that needs inference on the server, and it is on the actor",
        ),
    ],
)
def test_requests_that_cannot_be(options, said):
    with pytest.raises(UsageError, match=said):
        launch.Threads(**options)
