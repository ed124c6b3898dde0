"""What things are called behind the gateway."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.mcp_gateway.names import PAGE, NameFilter, NameScheme, cache_hints, gateway_uri, list_page, matches_template
from proxy.settings.mcp import NAME

SERVERS = st.from_regex(NAME, fullmatch=True)


@given(SERVERS, st.text(min_size=1))
def test_a_name_comes_apart_as_it_was_put_together(server: str, tool: str) -> None:
    assert NameScheme().split_name(NameScheme().public_name(server, tool)) == (server, tool)
    assert NameScheme(only=server).split_name(NameScheme(only=server).public_name(server, tool)) == (server, tool)


@pytest.mark.parametrize("name", ["find", "__find", "orders__", "", "orders_find"])
def test_what_names_no_server_is_of_none(name: str) -> None:
    assert NameScheme().split_name(name) is None


@pytest.mark.parametrize("name", ["a__b", "a_", "_a", "1a", "", "a b", "a.b", "a" * 33, "ä"])
def test_a_servers_name_can_be_told_from_its_tools(name: str) -> None:
    assert NAME.fullmatch(name) is None


def test_denied_is_denied_though_allowed() -> None:
    chosen = NameFilter(allow=["find_*", "x"], deny=["find_secret*"])
    assert [n for n in ("find_a", "find_secrets", "x", "xy", "FIND_A") if chosen.admits(n)] == ["find_a", "x"]
    assert not NameFilter(allow=[]).admits("x")


@given(st.integers(0, 3 * PAGE + 1))
def test_the_pages_of_a_list_are_the_list(count: int) -> None:
    items, found, cursor = list(range(count)), list[int](), None
    while True:
        part, cursor = list_page(items, cursor)
        found += part
        if cursor is None:
            break
    assert found == items


@pytest.mark.parametrize("cursor", ["", "x", "MQ==", "MA==", "ümlaut", "LTUwMA==", "NTAwMDAwMDAwMDAw", "4pGg"])
def test_a_cursor_of_somebody_else_is_refused(cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        list_page([1], cursor)


@given(st.text(alphabet="ab/:.+{}", max_size=12))
def test_a_template_without_expressions_matches_itself_alone(uri: str) -> None:
    if "{" not in uri and "}" not in uri:
        assert matches_template(uri, uri)
        assert not matches_template(uri, uri + "x")


def test_a_template_matches_what_it_expands_to() -> None:
    assert matches_template("test://template/{id}/data", "test://template/123/data")
    assert matches_template("file:///{+path}", "file:///a/b.txt")
    assert not matches_template("test://template/{id}/data", "other://template/123/data")
    assert not matches_template("test://a.c/{id}", "test://abc/1")
    assert gateway_uri("my_server", "file:///x") == "my-server+file:///x"


def test_a_merged_list_is_kept_no_longer_than_its_parts() -> None:
    assert cache_hints([{"ttlMs": 5, "cacheScope": "public"}, {"ttlMs": 9, "cacheScope": "public"}]) == {
        "ttlMs": 5,
        "cacheScope": "public",
    }
    assert cache_hints([{"ttlMs": 5, "cacheScope": "public"}, {}]) == {"ttlMs": 0, "cacheScope": "private"}
    assert cache_hints([]) == {"ttlMs": 0, "cacheScope": "private"}
