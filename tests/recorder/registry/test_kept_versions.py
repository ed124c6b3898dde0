"""One version of each of the last days and weeks is kept, and what a later day needs is never removed before it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recorder.registry.kept_versions import DAY_S, WEEK_S, LineVersion, keep_by_age, version_of_age

TIMES = st.lists(st.floats(0, 60 * DAY_S), min_size=1, max_size=60).map(sorted)


def line(times: list[float]) -> list[LineVersion]:
    """Versions that were made at these times, one after the other."""
    return [LineVersion(f"v{n}", n, at, f"/{n}", "sha") for n, at in enumerate(times, 1)]


@given(TIMES, st.floats(0, 10 * DAY_S))
def test_each_of_the_last_days_and_weeks_with_a_version_keeps_its_newest(times: list[float], later: float) -> None:
    made, at = line(times), times[-1] + later
    kept = keep_by_age(made, at)
    for span_s, count in ((DAY_S, 7), (WEEK_S, 4)):
        for period in range(int(at // span_s) - count + 1, int(at // span_s) + 1):
            of_it = [one for one in made if one.created_at // span_s == period]
            assert not of_it or of_it[-1].id in kept
    assert len(kept) <= 7 + 4


@given(TIMES, st.floats(0, 60 * DAY_S), st.floats(0, 60 * DAY_S))
def test_what_is_kept_later_was_kept_before(times: list[float], first: float, second: float) -> None:
    earlier, later = sorted((first, second))
    there = [one for one in line(times) if one.created_at <= earlier]
    then = keep_by_age([one for one in line(times) if one.created_at <= later], later)
    assert then & {one.id for one in there} <= keep_by_age(there, earlier)


@given(st.lists(st.floats(0, 0.999), min_size=36, max_size=36), st.floats(35, 36))
def test_with_a_version_a_day_one_of_a_day_and_one_of_a_week_ago_are_there(hours: list[float], at: float) -> None:
    """Every day removes what is not kept: then the reference is at most so old."""
    made: list[LineVersion] = []
    for day, hour in enumerate(hours):
        created = (day + hour) * DAY_S
        if created > at * DAY_S:
            break
        made.append(LineVersion(f"v{day}", day + 1, created, f"/{day}", "sha"))
        kept = keep_by_age(made, created)
        made = [one for one in made if one.id in kept]
    now = at * DAY_S
    day_old, week_old = version_of_age(made, DAY_S, now), version_of_age(made, WEEK_S, now)
    assert day_old is not None
    assert DAY_S <= now - day_old.created_at < 3 * DAY_S
    assert week_old is not None
    assert WEEK_S <= now - week_old.created_at < 3 * WEEK_S


def test_a_version_without_a_folder_is_neither_kept_nor_compared_with() -> None:
    base = LineVersion("v0", 0, 0.0, None, None)
    assert keep_by_age([base], 0.0) == set()
    assert version_of_age([base], DAY_S, 2 * DAY_S) is None
