"""Tests of what figures are written as."""

import json
import os
import socket

import pytest

from benchmarks.shared import report
from benchmarks.shared.measure import Rate


@pytest.fixture
def figures():
    ours = Rate((900.0, 1000.0, 1100.0), cpu_us=12.5)
    references = [
        report.against(ours, "limit", Rate((1800.0, 2000.0, 2200.0), 6.0), goal=0.8),
        report.against(ours, "another", Rate((100.0, 100.0, 200.0)), goal=5.0),
        report.against(ours, "sum", Rate((500.0, 500.0, 500.0)), source="computed"),
    ]
    return [report.figure("writer", "B=1", "steps/s", ours, references)]


def test_goals_are_judged(figures):
    limit, another, total = figures[0].references
    assert (limit.ratio, limit.met) == (0.5, False)
    assert (another.ratio, another.met, another.spread) == (9.0, True, (5.5, 10.0))
    assert (total.ratio, total.met) == (2.0, None)


def test_the_table_is_aligned_and_says_what_was_computed(figures):
    title, header, *rows = report.table(figures).splitlines()
    assert title == "writer (steps/s)"
    assert [row.split()[-1] for row in rows[:2]] == ["MISSED", "met"]
    assert "9.00 (5.50 to 10.00)" in rows[1]
    assert "sum [computed]" in rows[2]
    column = header.index("against")
    assert [row[column:].split()[0] for row in rows if row] == ["limit", "another", "sum"]


def test_json_and_markdown_hold_the_figures_and_no_place(figures, tmp_path):
    paths = report.write(tmp_path / "sub" / "speed", figures, {"command": "measure --it", **report.machine()})
    assert [path.name for path in paths] == ["speed.json", "speed.md"]
    written = json.loads(paths[0].read_text())
    assert written["figures"][0]["value"] == 1000.0
    assert [r["met"] for r in written["figures"][0]["references"]] == [False, True, None]
    assert {"cores", "python", "jax", "dm-reverb"} <= written["machine"].keys()
    for path in paths:
        text = path.read_text()
        assert socket.gethostname() not in text
        assert os.getcwd() not in text
    assert "made by `measure --it`" in paths[1].read_text()
    assert "| B=1 | 1,000 | 12.5 | limit | 2,000 | 6 | 0.50 (0.50 to 0.50) | 0.8 | MISSED |" in paths[1].read_text()


@pytest.mark.parametrize(("value", "text"), [(0.1234, "0.123"), (12.34, "12.3"), (123.4, "123"), (70_412, "70,400")])
def test_numbers_have_three_digits(value, text):
    assert report.number(value) == text
