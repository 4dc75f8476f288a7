"""Proxies that variables name stand between no two parts of a program."""

import pytest
import reverb

from acme_ext.replay.reverb.server import ReverbServer
from acme_ext.utils import proxies


def test_this_machine_and_addresses_in_numbers_are_asked_directly():
    assert proxies.bypassed({"http_proxy": "there"})["no_grpc_proxy"] == "0,1,2,3,4,5,6,7,8,9,localhost"
    once = proxies.bypassed({"no_proxy": "here.example"})
    assert once["no_grpc_proxy"].split(",")[-2:] == ["localhost", "here.example"]
    assert once["no_proxy"] == "here.example"
    assert proxies.bypassed(once) == once


@pytest.mark.parametrize("name", ["http_proxy", "grpc_proxy"])
def test_a_replay_server_answers_beside_a_proxy_that_does_not(name, monkeypatch):
    monkeypatch.setenv("no_grpc_proxy", "")
    monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    server = ReverbServer([reverb.Table.queue("queue", 1)])
    try:
        assert set(server.client.server_info(timeout=30)) == {"queue"}
    finally:
        server.close()
