import pytest
from worlds import Source

from acme_ext.acting.variables import VariableClient


@pytest.mark.parametrize("period", [1, 3])
def test_renews_every_period(period):
    source = Source()
    client = VariableClient(source, period)
    assert source.calls == 0  # not before they are asked for
    assert client.params == 1
    assert client.params == 1
    seen = []
    for _ in range(9):
        client.update()
        seen.append(float(client.params))
    assert seen == [1 + i // period for i in range(1, 10)]


def test_waiting_renews_at_once_and_begins_a_period():
    source = Source()
    client = VariableClient(source, 3)
    client.update()
    client.update()
    client.update(wait=True)
    assert client.params == 1
    client.update()
    client.update()
    assert client.params == 1
    client.update()
    assert client.params == 2
