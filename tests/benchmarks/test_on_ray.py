"""What a program on Ray costs beside one on processes, as a table; and hosts are not played where they can not be."""

from benchmarks.faults import ray_hosts
from benchmarks.speed import on_ray
from benchmarks.speed.sections.program import Outcome


def test_a_row_has_medians_and_the_median_ratio_of_the_rounds():
    processes = [Outcome(10.0, 11.0, 1.0, 100.0, 50.0), Outcome(20.0, 21.0, 2.0, 200.0, 60.0)]
    ray = [Outcome(15.0, 12.0, 1.5, 90.0, 55.0), Outcome(40.0, 22.0, 2.5, 220.0, 54.0)]
    found = {kind: {"processes": processes, "ray": ray} for kind in on_ray.trials(1.0)}
    lines = on_ray.table(found)
    assert len(lines) == 2 + 7
    assert lines[2] == "| start-up to the first action, s | 15 (10 to 20) | 27.5 (15 to 40) | 1.75 |"
    assert lines[6] == "| actors, environment steps of 3 ms, steps/s | 150 (100 to 200) | 155 (90 to 220) | 1.00 |"


def test_who_is_not_root_is_told_so_and_nothing_happens(monkeypatch, capsys):
    monkeypatch.setattr(ray_hosts.os, "geteuid", lambda: 1000)
    monkeypatch.setattr("sys.argv", ["ray_hosts"])
    assert ray_hosts.main() == 0
    assert capsys.readouterr().out == "skipped: only root can create the hosts.\n"
