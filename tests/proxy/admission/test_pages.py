"""Which paths are pages, what they need, and how an error looks there.

After ten wrong keys within a minute their sender waits, nobody else does, and what is remembered is bounded.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.admission.pages import (
    ALLOWED,
    COOKIE,
    REMEMBERED,
    LoginThrottle,
    cookie_value,
    error_page,
    is_page,
    page_scope,
)
from proxy.errors import BadRequest, TooMany, Unauthorized
from recorder.registry.keys import Scope


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("/hone", True),
        ("/hone/", True),
        ("/hone/trajectories/traj_1", True),
        ("/hone/static/hone.css", True),
        ("/hone/v1/trajectories", False),
        ("/hone/mcp", False),
        ("/honest", False),
        ("/v1/models", False),
    ],
)
def test_pages_are_what_lies_under_hone_and_is_no_api(path: str, page: bool) -> None:
    assert is_page(path) is page


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/hone/", Scope.READ),
        ("GET", "/hone/settings", Scope.READ),
        ("POST", "/hone/trajectories/traj_1/feedback", Scope.FEEDBACK),
        ("POST", "/hone/groups/group_1/preference", Scope.FEEDBACK),
        ("POST", "/hone/trajectories/traj_1/calls/call_1/ask-again", Scope.EVAL),
        ("GET", "/hone/trajectories/traj_1/calls/call_1/ask-again", Scope.READ),
        ("POST", "/hone/trajectories/traj_1/delete", Scope.ADMIN),
        ("POST", "/hone/selection", Scope.FEEDBACK),
        ("POST", "/hone/filters", Scope.ADMIN),
        ("POST", "/hone/versions/a@1/promote", Scope.ADMIN),
        ("POST", "/hone/made-tomorrow", Scope.ADMIN),
        ("POST", "/hone/sign-out", Scope.READ),
        ("GET", "/hone/sign-in", None),
        ("POST", "/hone/sign-in", None),
        ("GET", "/hone/static/hone.css", None),
    ],
)
def test_reading_needs_read_and_a_change_that_nobody_named_needs_admin(
    method: str, path: str, scope: Scope | None
) -> None:
    assert page_scope(method, path) is scope


@given(st.text(), st.text())
def test_an_error_shows_what_was_said_and_runs_none_of_it(said: str, path: str) -> None:
    for error in (BadRequest(said), Unauthorized(said)):
        page = error_page(error, "/hone/" + path).decode()
        assert page.count("<a href='") == 1
        told = page.partition("<p role=alert>")[2].partition("</p>")[0]
        assert not set(told) & set("<>\"'")


def test_an_error_of_nobody_leads_to_signing_in_and_back() -> None:
    assert b"href='/hone/sign-in?onward=/hone/trajectories/a%26b'" in error_page(
        Unauthorized("sign in"), "/hone/trajectories/a&b"
    )


@given(st.binary())
def test_whatever_a_browser_sends_as_its_cookies_is_read_or_is_none(sent: bytes) -> None:
    cookie_value({b"cookie": sent}, COOKIE)


def test_a_cookie_is_found_among_others() -> None:
    assert cookie_value({b"cookie": b"a=1; hone_signed_in=two; b=3"}, COOKIE) == "two"
    assert cookie_value({b"cookie": b"a=1"}, COOKIE) is None
    assert cookie_value({}, COOKIE) is None


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def test_a_sender_waits_until_a_minute_after_the_first_of_the_last_ten() -> None:
    clock = Clock()
    tries = LoginThrottle(clock)
    for _ in range(ALLOWED):
        tries.require_few("10.0.0.1")
        tries.failed("10.0.0.1")
        clock.at += 1
    with pytest.raises(TooMany, match="try again in 50 s") as told:
        tries.require_few("10.0.0.1")
    assert told.value.retry_after_s == 50
    tries.require_few("10.0.0.2")
    clock.at += 50
    tries.require_few("10.0.0.1")


def test_what_is_remembered_is_bounded() -> None:
    tries = LoginThrottle(Clock())
    for number in range(REMEMBERED + 10):
        for _ in range(ALLOWED + 3):
            tries.failed(f"peer {number}")
    assert len(tries._wrong) == REMEMBERED
    assert len(tries._wrong.get(f"peer {REMEMBERED}") or ()) == ALLOWED
