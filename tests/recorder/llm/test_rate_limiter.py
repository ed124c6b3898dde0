"""How fast a model may be asked: on a clock of the test's own."""

import pytest

from recorder.llm.rate_limiter import MINUTE_S, MOST_HELD_S, RateLimiter, RequestSlot, retry_after_s, shared_limiter


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def waits(pace: RateLimiter, tokens: int = 1) -> float:
    """How long a request must wait; one that need not is let through."""
    found = pace.take(tokens)
    return 0.0 if isinstance(found, RequestSlot) else found


def test_no_minute_sees_more_requests_than_allowed() -> None:
    clock = Clock()
    pace = RateLimiter(3, None, clock)
    granted = []
    for _ in range(400):
        clock.at += 7.0
        if not waits(pace):
            granted.append(clock.at)
    assert len(granted) > 100
    assert all(sum(at <= other < at + MINUTE_S for other in granted) <= 3 for at in granted)


def test_whoever_waits_as_long_as_told_gets_a_turn() -> None:
    clock = Clock()
    pace = RateLimiter(2, None, clock)
    assert [waits(pace), waits(pace)] == [0.0, 0.0]
    clock.at += waits(pace)
    assert waits(pace) == 0.0


def test_tokens_are_counted_too_high_until_the_answer_tells_them() -> None:
    pace = RateLimiter(None, 1000, Clock())
    turn = pace.take(900)
    assert isinstance(turn, RequestSlot)
    assert waits(pace, 200) == MINUTE_S
    turn.tokens = 100
    assert waits(pace, 900) == 0.0


def test_a_request_of_more_tokens_than_a_minute_has_goes_out_alone() -> None:
    clock = Clock()
    pace = RateLimiter(None, 1000, clock)
    assert waits(pace, 5000) == 0.0
    assert waits(pace, 1) == MINUTE_S
    clock.at += MINUTE_S
    assert waits(pace, 5000) == 0.0


def test_a_model_that_is_held_gives_no_turn_until_then() -> None:
    clock = Clock()
    pace = RateLimiter(None, None, clock)
    pace.hold(30)
    pace.hold(5)
    assert waits(pace) == pace.held_s() == 30
    clock.at += 30
    assert waits(pace) == pace.held_s() == 0.0
    pace.hold(1e12)
    assert pace.held_s() == MOST_HELD_S


def test_models_of_one_process_share_their_pace() -> None:
    assert shared_limiter("m", "http://a", 5, None) is shared_limiter("m", "http://a", 5, None)
    assert shared_limiter("m", "http://a", 5, None) is not shared_limiter("m", "http://b", 5, None)


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        (None, 0),
        ("7", 7),
        ("0.5", 0.5),
        ("-3", 0),
        ("soon", 0),
        ("", 0),
        ("nan", 0),
        ("inf", 0),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0),
        ("Thu, 99 Jan 1970 00:00:10 GMT", 0),
    ],
)
def test_a_retry_after_is_seconds_or_a_date(told: str | None, seconds: float) -> None:
    assert retry_after_s(told, now=100.0) == seconds
