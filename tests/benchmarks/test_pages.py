import pytest

from benchmarks import pages

PAGE = """# some-setting

| seed | final return | least episode | greatest | steps | learner steps | wall time s |
|--:|--:|--:|--:|--:|--:|--:|
| 0 | 500 | 500 | 500 | 100,004 | 24,752 | 1,160 |
| 3 | 185.2 | 112 | 500 | 100,002 | 24,752 | 156 |
| 4 | 484.2 | 112 | 500 | 100,002 | 24,752 | 158 |
| median | 484.2 |  |  |  |  |  |
| mean | 389.8 |  |  |  |  |  |
| least | 185.2 |  |  |  |  |  |
| greatest | 500 |  |  |  |  |  |
"""


@pytest.fixture
def found(tmp_path):
    (tmp_path / "dqn-cartpole.md").write_text(PAGE)
    (tmp_path / "dqn-catch.md").write_text(PAGE.replace("389.8", "0.5"))
    return pages.read(tmp_path)


def test_a_setting_s_page_is_read(found):
    assert [result.name for result in found] == ["dqn-cartpole", "dqn-catch"]
    cartpole, catch = found
    assert cartpole.scores == {"median": "484.2", "mean": "389.8", "least": "185.2", "greatest": "500"}
    assert (cartpole.seeds, cartpole.seconds) == (3, 158)
    assert cartpole.bar == "median 475: reached"
    assert catch.bar == "mean 0.9: MISSED"


def test_tables_go_between_the_marks_and_nowhere_else(found):
    text = f"before\n{pages.BEGIN}\nold\n{pages.END}\nafter\n"
    new = pages.between_marks(text, pages.agent_table("dqn", found))
    assert new.startswith(f"before\n{pages.BEGIN}\n| environment")
    assert new.endswith(f"{pages.END}\nafter\n")
    assert "old" not in new
    assert "| `gym:CartPole-v1` | 100,000 | 3 | 484.2 | 389.8 | 185.2 | median 475: reached |" in new
    assert pages.between_marks(new, pages.agent_table("dqn", found)) == new
    with pytest.raises(ValueError, match="once"):
        pages.between_marks("no marks", [])


def test_the_pages_say_what_was_measured():
    for path, text in pages.pages(pages.read()).items():
        assert path.read_text() == text, f"{path.name}: python -m benchmarks.pages"
