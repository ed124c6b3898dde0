"""A proxy that is ready says what to do with it, in lines that work as they are, and shows no key."""

from __future__ import annotations

import json
import shlex

import pytest

from proxy.supervision.first_request import describe_ready, local_url


def test_a_proxy_that_is_ready_says_its_addresses_and_a_request() -> None:
    base_url, pages, curl = describe_ready("http://127.0.0.1:8700", "it's @1", pages=True, with_key=False)
    assert base_url == "base_url  http://127.0.0.1:8700/v1"
    assert pages == "pages     http://127.0.0.1:8700/hone/"
    command = shlex.split(curl.removeprefix("try it    "))
    assert command[:2] == ["curl", "http://127.0.0.1:8700/v1/chat/completions"]
    assert json.loads(command[-1])["model"] == "it's @1"
    assert "uthorization" not in curl


def test_with_keys_the_request_has_a_placeholder_for_one() -> None:
    base_url, curl = describe_ready("http://h:1", "m", pages=False, with_key=True)
    assert '-H "Authorization: Bearer $HONE_KEY"' in curl
    assert "/hone/" not in base_url + curl


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://127.0.0.1:1"),
        ("::1", "http://[::1]:1"),
        ("10.0.0.7", "http://10.0.0.7:1"),
    ],
)
def test_an_address_for_everybody_is_reached_at_this_machine(host: str, url: str) -> None:
    assert local_url(host, 1) == url
