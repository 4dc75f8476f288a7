"""That the benchmark of inference measures what its page says."""

import pytest

from benchmarks.speed import inference


@pytest.mark.release
def test_the_page_has_both_arrangements_beside_their_limits(tmp_path):
    words = "--models mlp --envs 2 --actors 1 --seconds 0.4 --rounds 2 --still"
    inference.main([*words.split(), "--out", str(tmp_path)])
    text = (tmp_path / "inference-still.md").read_text()
    assert f"`python -m benchmarks.speed.inference {words} --out {tmp_path}`" in text
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| mlp")]
    assert [row[3] for row in rows[1:]] == ["bare loop", "actor", "server"]
    alone, bare, local, remote = rows
    assert float(alone[3]) > 0
    for row in (bare, local, remote):
        assert float(row[4].replace(",", "")) > 0
        assert float(row[5]) > 0
    assert float(remote[6]) > 0
    assert float(remote[7]) == 1  # each half asks alone, in a batch of its size
    assert 0 < float(remote[8]) <= float(remote[9])
    assert remote[11] == "0"  # compiled while serving
