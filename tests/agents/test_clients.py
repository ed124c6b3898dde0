"""The list of clients fits the programs and the environments that are there, before any of them is made."""

from __future__ import annotations

import re
from itertools import product

import pytest

from tests.agents import table, test_real_agents
from tests.agents.clients import CLIENTS, ENDPOINTS, Client
from tests.agents.environments import PINS, PROGRAMS, names
from tests.agents.notes import MISSING, TODAY, WAYS

SHARED = {"desk.py", "desk.mjs", "workplace.py"}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.id)
def test_a_client_has_a_program_an_environment_and_a_version(client: Client) -> None:
    assert (PROGRAMS / client.program).is_file()
    assert client.environment in names()
    assert re.fullmatch(r"\d+(\.\d+)+", client.version)


def test_every_program_and_every_environment_is_used() -> None:
    programs = {path.name for path in PROGRAMS.iterdir() if path.is_file()}
    assert programs == {client.program for client in CLIENTS} | SHARED
    assert set(names()) == {client.environment for client in CLIENTS}


def test_rows_are_told_apart() -> None:
    assert len({client.id for client in CLIENTS}) == len(CLIENTS)
    assert len({(c.name, c.version, c.engine, c.format, c.stream) for c in CLIENTS}) == len(CLIENTS)


def test_what_is_said_of_a_client_is_of_one_that_is_there() -> None:
    known = {client.name for client in CLIENTS}
    assert TODAY.keys() | WAYS.keys() <= known
    assert known.isdisjoint(MISSING)


def test_what_fails_today_is_named_by_a_test() -> None:
    tests = {name for name in vars(test_real_agents) if name.startswith("test_")}
    assert {name for reasons in TODAY.values() for name in reasons} <= tests


@pytest.mark.parametrize("name", names())
def test_every_version_of_an_environment_is_exact(name: str) -> None:
    lines = (PINS / f"{name}.txt").read_text().splitlines()
    assert lines
    assert [line for line in lines if not re.match(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==[\w.+!]+( ;|$)", line)] == []


def test_every_client_has_a_row() -> None:
    rows = {table.key(line) for line in table.FILE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")}
    assert [client.id for client in CLIENTS if table.key(table.start(client)) not in rows] == []


def test_the_table_has_no_other_row_and_says_what_is_known() -> None:
    committed = table.FILE.read_text(encoding="utf-8")
    assert table.render({}, committed) == committed, "run `make agents-table`"


def test_the_representatives_use_every_format_whole_and_streamed_and_both_places_of_tools() -> None:
    chosen = [client for client in CLIENTS if client.representative]
    assert {(client.format, client.stream) for client in chosen} == set(product(ENDPOINTS, (False, True)))
    assert {client.tools for client in chosen} == {"local", "mcp"}
    assert {client.engine for client in chosen} == {"vLLM", "scripted"}


def test_the_page_for_users_shows_the_table() -> None:
    page, found = table.PAGE.read_text(encoding="utf-8"), table.FILE.read_text(encoding="utf-8")
    assert table.with_short_table(page, found) == page, "run `make agents-table`"
    assert all(client.name in page for client in CLIENTS)
