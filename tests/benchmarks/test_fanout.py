"""Where servers are full, by the shares that were measured; and who is struck in which world."""

import math

import pytest

from benchmarks.faults import killed_nodes
from benchmarks.speed import fanout
from benchmarks.speed.fanout import Demand, Load


def test_a_server_is_full_where_the_line_through_its_shares_reaches_a_core():
    loads = [Load(10.0 * n, 0.0, 0.1 + 0.002 * n) for n in (16, 64, 256)]
    place, behind = fanout.full_at((16, 64, 256), loads)
    assert place == pytest.approx(450)
    assert behind is None


def test_a_server_that_answers_no_more_is_full_there():
    loads = [Load(160.0, 0.0, 0.3), Load(320.0, 0.0, 0.6), Load(330.0, 0.0, 0.6)]
    assert fanout.full_at((16, 64, 256), loads) == (32.0, 0.6)


def test_a_server_that_does_nothing_is_never_full():
    assert fanout.full_at((16, 64), [Load(16.0, 0.0, 0.1), Load(64.0, 0.0, 0.1)]) == (math.inf, None)


def test_the_page_has_every_server_at_every_number_of_actors():
    loads = {name: Load(100.0, 2e6, 0.25) for name in ("learner", "coordinator", "inference", "replay")}
    lines = fanout.page({16: (loads, 9.9, 1.5)}, Demand(2.0, 10.0, 8.0))
    assert "| 16 | coordinator | 100 | 2.0 | 0.25 |" in lines
    assert "| learner | 4 hosts of 64 actors | computed: it would use one core |" in lines
    assert "| replay | 64 actors | computed: it would use one core |" in lines
    assert "| 16 | 9.9 | 1.5 |" in lines
    assert [Demand(2.0, 10.0, 8.0).callers(actors) for actors in (1, 64, 65, 256)] == [1, 1, 2, 4]


def test_the_page_has_the_command_with_its_demand(tmp_path, monkeypatch):
    loads = {name: Load(100.0, 2e6, 0.25) for name in ("learner", "coordinator", "inference", "replay")}
    monkeypatch.setattr(fanout, "measure", lambda actors, demand: (loads, 9.9, 1.5))
    assert fanout.main(["--actors", "4", "16", "--rate", "5", "--out", str(tmp_path)]) == 0
    assert (
        "`python -m benchmarks.speed.fanout --actors 4 16 --rate 5.0`: actors of 5 steps/s"
        in (tmp_path / "fanout.md").read_text()
    )


def test_threads_have_an_actor_that_raises_and_every_process_is_struck():
    tried = killed_nodes.trials(killed_nodes.NODES, killed_nodes.WORLDS, restarts=2, steps=100)
    assert [trial.node for trial in tried if trial.world == "threads"] == ["actor"]
    assert [trial.node for trial in tried if trial.world == "ray"] == list(killed_nodes.NODES)
    line = killed_nodes.row(tried[0], killed_nodes.Outcome(1, 0, 0, 295, 217, 0))
    assert line == "| actor (raises) | threads | 1 | 0 | 0 | 295 | 217 | 0 |"
    killed = killed_nodes.row(tried[1], killed_nodes.Outcome(-9, 0, 0, 12, -1, 0))
    assert "by SIGKILL" in killed
    assert "the start" in killed


@pytest.mark.release
def test_a_few_actors_are_played_to_the_end(tmp_path, capsys):
    assert fanout.main(["--actors", "2", "--seconds", "2", "--out", str(tmp_path)]) == 0
    assert "| 2 | learner |" in (tmp_path / "fanout.md").read_text()


@pytest.mark.release
def test_an_actor_that_is_killed_is_started_again_and_nothing_is_left(capsys):
    assert killed_nodes.main(["--nodes", "actor", "--worlds", "processes", "--steps", "3000"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("| actor | processes | 0 | 1 | 0 | 0 |")
    assert last.endswith("| 0 |")
