"""Addresses: what a path, a key and headers say about a run, and what they may not say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.admission.address import NOWHERE, AddressSource, NamedTrajectory, combine_addresses, parse_named, split_path
from proxy.errors import BadRequest, Forbidden
from recorder.states import CallKind, Purpose

legal = st.from_regex(r"[A-Za-z0-9._:~-]{1,128}", fullmatch=True).filter(lambda id_: id_ not in {".", ".."})


@given(legal, legal)
def test_a_group_and_a_trajectory_are_taken_off_the_path(group: str, run: str) -> None:
    named, rest = split_path(f"/g/{group}/t/{run}/v1/chat/completions".encode())
    assert (named, rest) == (NamedTrajectory(run, group), b"/v1/chat/completions")
    assert named is not None
    assert parse_named(str(named)) == named


@given(legal)
def test_a_trajectory_alone_is_taken_off_the_path(run: str) -> None:
    assert split_path(f"/t/{run}/hone/v1/done".encode()) == (NamedTrajectory(run, None), b"/hone/v1/done")
    assert parse_named(run) == NamedTrajectory(run, None)


def test_other_paths_stay_as_they_are() -> None:
    for path in (b"/v1/models/Qwen%2FQwen3-4B", b"/", b"/tokenize", b"/grab/a/t/b"):
        assert split_path(path) == (None, path)


@pytest.mark.parametrize(
    "path",
    [
        "/t/../v1/chat/completions",
        "/t/./v1/chat/completions",
        "/t//v1/chat/completions",
        "/t/",
        "/t/%2e%2e/v1/chat/completions",
        "/t/a%2Fb/v1/chat/completions",
        "/t/a b/v1/chat/completions",
        "/t/ü/v1/chat/completions",
        f"/t/{'x' * 129}/v1/chat/completions",
        "/g/../t/a/v1/chat/completions",
        "/g//t/a/v1/chat/completions",
        "/g/a/t/../v1/chat/completions",
        "/g/a/v1/chat/completions",
        "/g/a",
        "/t/a/../v1/chat/completions",
        "/t/a/v1/%2e%2E/chat",
        "/v1/../hone/v1/aliases",
    ],
)
def test_ids_that_are_none_are_refused(path: str) -> None:
    with pytest.raises(BadRequest):
        split_path(path.encode())


def test_nothing_said_is_nothing_guessed() -> None:
    assert combine_addresses(None, None, {b"host": b"x", b"user-agent": b"y"}) is NOWHERE


def test_the_path_is_stronger_than_the_headers_which_add_what_it_can_not_say() -> None:
    headers = {
        b"x-hone-trajectory": b"other",
        b"x-hone-group-size": b"8",
        b"x-hone-purpose": b"val",
        b"x-hone-turn": b"aux",
        b"x-hone-done": b"true",
        b"x-hone-tags": b"env=prod, team = a",
    }
    said = combine_addresses(NamedTrajectory("run", "group"), None, headers)
    assert said.source is AddressSource.PATH
    assert (said.address.trajectory, said.address.group, said.address.group_size) == ("run", "group", 8)
    assert (said.address.purpose, said.address.call_kind, said.address.done) == (Purpose.VAL, CallKind.AUX, True)
    assert said.address.tags == {"env": "prod", "team": "a"}


def test_headers_name_a_run_or_a_group_alone() -> None:
    said = combine_addresses(None, None, {b"x-hone-trajectory": b"run", b"x-hone-group": b"group"})
    assert (said.source, said.address.trajectory, said.address.group) == (AddressSource.HEADER, "run", "group")
    said = combine_addresses(None, None, {b"x-hone-group": b"group"})
    assert (said.source, said.address.trajectory, said.address.group) == (AddressSource.HEADER, None, "group")


def test_headers_that_name_no_run_are_no_source() -> None:
    said = combine_addresses(None, None, {b"x-hone-purpose": b"none"})
    assert (said.source, said.address.purpose) == (None, Purpose.NONE)


def test_a_key_names_its_run_and_no_other() -> None:
    key = NamedTrajectory("run", "group")
    assert combine_addresses(None, key, {}).source is AddressSource.KEY
    assert combine_addresses(key, key, {}).source is AddressSource.PATH
    assert combine_addresses(None, key, {b"x-hone-trajectory": b"other"}).address.trajectory == "run"
    with pytest.raises(Forbidden, match="belongs to the trajectory group/run, not to other"):
        combine_addresses(NamedTrajectory("other", None), key, {})


@pytest.mark.parametrize(
    ("header", "value", "words"),
    [
        (b"x-hone-purpose", b"fun", "use one of train, val, eval, none"),
        (b"x-hone-turn", b"third", "use one of main, aux"),
        (b"x-hone-done", b"maybe", "use true or false"),
        (b"x-hone-group-size", b"0", "a number from 1 to 4096"),
        (b"x-hone-group-size", b"4097", "a number from 1 to 4096"),
        (b"x-hone-group-size", b"9" * 5000, "a number from 1 to 4096"),
        (b"x-hone-group-size", b"0000000019999999999", "a number from 1 to 4096"),
        (b"x-hone-trajectory", b"..", "not a valid id"),
        (b"x-hone-group", b"a/b", "not a valid id"),
        (b"x-hone-tags", b"env", "write name=value"),
        (b"x-hone-tags", b",".join(b"n%d=v" % n for n in range(33)), "at most 32"),
    ],
)
def test_headers_that_make_no_sense_are_refused_by_name(header: bytes, value: bytes, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        combine_addresses(None, None, {header: value})
