"""Times of day: read, waited for, told."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.base.hours import parse_hours

times = st.builds(lambda minute: f"{minute // 60:02d}:{minute % 60:02d}", st.integers(0, 1439))
moments = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31))


@pytest.mark.parametrize(
    ("hours", "at", "wait_s"),
    [
        ("22:00-06:00", "23:30", 0),
        ("22:00-06:00", "05:59", 0),
        ("22:00-06:00", "06:00", 16 * 3600),
        ("22:00-06:00", "21:59", 60),
        ("09:00-17:00", "09:00", 0),
        ("09:00-17:00", "17:00", 16 * 3600),
    ],
)
def test_hours_begin_at_the_first_time_and_end_before_the_second(hours: str, at: str, wait_s: float) -> None:
    local = datetime.fromisoformat(f"2026-11-22T{at}")
    assert parse_hours(hours).opens_in_s(local) == wait_s


@pytest.mark.parametrize("text", ["", "22-06", "24:00-06:00", "06:00-06:00", "6:00-7:00", "22:00-06:00 ", "all day"])
def test_what_names_no_hours_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="22:00-06:00"):
        parse_hours(text)


@given(times, times, moments)
def test_hours_are_open_once_waited_for_and_shut_until_then(begin: str, end: str, local: datetime) -> None:
    if begin == end:
        return
    hours = parse_hours(f"{begin}-{end}")
    wait_s = hours.opens_in_s(local)
    assert 0 <= wait_s <= 86400
    assert hours.opens_in_s(local + timedelta(seconds=wait_s)) == 0
    if wait_s > 1:
        assert hours.opens_in_s(local + timedelta(seconds=wait_s - 1)) > 0


@given(times, times, moments)
def test_one_of_some_hours_and_the_rest_of_the_day_is_open(begin: str, end: str, local: datetime) -> None:
    if begin != end:
        either = [parse_hours(f"{begin}-{end}").opens_in_s(local), parse_hours(f"{end}-{begin}").opens_in_s(local)]
        assert sum(wait_s == 0 for wait_s in either) == 1
