"""What a checkpoint of the replay costs a learner."""

import pytest

from benchmarks.speed import save_pause
from benchmarks.speed.save_pause import Pause


@pytest.mark.release
@pytest.mark.parametrize("kind", save_pause.kinds()[:3], ids=lambda kind: kind.name)
def test_a_replay_in_another_process_is_filled_learned_from_and_saved(kind, monkeypatch):
    monkeypatch.setattr(save_pause, "_WARM_S", 0.1)
    monkeypatch.setattr(save_pause, "_BEFORE_S", 0.5)
    found = save_pause.measure(kind, 3_200)
    assert found.items == 3_200 / (16 if kind.config.replay.rows_per_item == 16 else 1)
    assert found.nbytes > 3_200
    assert min(found.seconds, found.usual, found.longest, found.rate) > 0


def test_the_page_has_a_row_for_each_replay():
    text = save_pause.page({"blocks, 16 rows": Pause(1_000, 2_500_000, 1.26, 0.01, 0.52, 0.8)}, 16_000, {"cores": 2})
    assert "`python -m benchmarks.speed.save_pause --rows 16000`" in text
    assert "| blocks, 16 rows | 1,000 | 2 | 1.3 | 0.01 s | 0.52 s | 0.80 |" in text
    assert text.endswith("cores 2.\n")
