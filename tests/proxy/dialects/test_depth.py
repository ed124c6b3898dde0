"""What is nested as deeply as it is read can be written, recorded and shown."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.engine_fields import AROUND, is_writable


@given(st.integers(0, 400), st.integers(0, 300))
def test_what_is_read_can_be_written_inside_of_more(levels: int, beside: int) -> None:
    data = b"[" * levels + b"[]" + b",[]" * beside * (levels > 0) + b"]" * levels
    parsed = orjson.loads(data)
    if is_writable(parsed, data):
        orjson.dumps(orjson.loads(b"[" * AROUND + data + b"]" * AROUND))
    assert is_writable(parsed, data) or levels > 200


def test_what_is_wide_is_not_deep() -> None:
    data = b"[" + b",".join([b'{"a": []}'] * 10_000) + b"]"
    assert is_writable(orjson.loads(data), data)
