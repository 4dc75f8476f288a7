import dataclasses

import pytest

from benchmarks.learning import outcomes, result_pages
from benchmarks.learning import run as learning
from benchmarks.learning.outcomes import Outcome
from benchmarks.learning.settings import SETTINGS


@pytest.fixture
def found(tmp_path):
    for name, scores in (("dqn-cartpole", (500.0, 185.25, 484.0)), ("dqn-catch", (0.9, 0.9))):
        seeds = [Outcome(i, score, 0.0, 1.0, 100, 10, 5.0 + i) for i, score in enumerate(scores)]
        outcomes.write(tmp_path / learning.FILE, name, SETTINGS[name], seeds)
    return result_pages.read(tmp_path)


def test_results_are_read_and_judged(found):
    cartpole, catch = found
    assert cartpole.bar == "mean 475, least 400: MISSED"
    assert catch.bar == "mean 0.9, least 0.8: reached"
    budget, seeds, mean, iqm, least, steady, _, seconds, _ = cartpole.cells
    assert (budget, seeds, mean, least, steady, seconds) == ("100,000", "3", "389.8", "185.2", "", "6")
    assert iqm == "389.8"  # an interval takes five seeds
    more = dataclasses.replace(cartpole, seeds=[*cartpole.seeds, *cartpole.seeds])
    assert more.cells[3].startswith(f"{outcomes.summarise(more.setting, more.seeds).iqm:.4g} (")
    later = dataclasses.replace(catch, seeds=[dataclasses.replace(o, seed=o.seed + 3) for o in catch.seeds])
    assert later.cells[1] == "2 (3 to 4)"


def test_the_page_of_all_agents_names_what_was_not_measured(found):
    *rows, empty, lacking = result_pages.whole_table(found)
    assert (len(rows), empty) == (4, "")
    assert lacking.startswith("Not measured: `dqn-cartpole-short`, `dqn-cartpole-demo`, ")
    assert "`dqn-catch`" not in lacking


def test_tables_go_between_the_marks_and_nowhere_else(found):
    text = f"before\n{result_pages.BEGIN}\nold\n{result_pages.END}\nafter\n"
    new = result_pages.between_marks(text, result_pages.agent_table("dqn", found))
    assert new.startswith(f"before\n{result_pages.BEGIN}\n| environment")
    assert new.endswith(f"{result_pages.END}\nafter\n")
    assert "old" not in new
    assert "| `gym:CartPole-v1` | 100,000 | 3 | 389.8 | " in new
    assert result_pages.between_marks(new, result_pages.agent_table("dqn", found)) == new
    with pytest.raises(ValueError, match="once"):
        result_pages.between_marks("no marks", [])


def test_the_share_of_demonstrations_is_that_of_the_agents_config(tmp_path):
    for name, scores in (("r2d3-key_door-0", (0.0,)), ("r2d3-key_door", (1.0, 0.5)), ("dqfd-key_door", (1.0,))):
        seeds = [Outcome(i, score, 0.0, 1.0, 100, 10, 5.0) for i, score in enumerate(scores)]
        outcomes.write(tmp_path / learning.FILE, name, SETTINGS[name], seeds)
    found = result_pages.read(tmp_path)
    assert result_pages.demo_ratios(found) == {"r2d3": {0.0: [0], 0.0625: [1, 0.5]}, "dqfd": {0.25: [1]}}
    assert "| `r2d3` | 0.0625 | 2 | 0.75 | 0.5 |" in result_pages.demo_table(found)
    result_pages.draw_demo_ratios(found, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_the_pages_say_what_was_measured():
    for path, text in result_pages.pages(result_pages.read()).items():
        assert path.read_text() == text, f"{path.name}: python -m benchmarks.learning.result_pages"
