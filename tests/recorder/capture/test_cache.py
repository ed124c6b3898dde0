"""Ids of contents that come with every call are computed once, and few of them are kept."""

from __future__ import annotations

import pytest

from recorder.capture.cache import CaptureCache
from recorder.messages import content_hashes

KEYS = (b"a" * 32, b"b" * 32)


@pytest.mark.parametrize("size", [0, 1, 2_047, 2_048, 51_000, 131_071, 131_072, 1_000_000])
def test_a_cached_id_is_the_id_of_the_content(size: int) -> None:
    memory = CaptureCache()
    for key in KEYS * 2:
        for content in (b"x" * size, b"x" * size + b"y"):
            assert memory.content_id(key, content) == content_hashes.content_id(key, content)


def test_the_id_of_equal_tools_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, hashed = CaptureCache(), []
    real = content_hashes.content_id

    def content_id(key: bytes, content: bytes) -> bytes:
        hashed.append(len(content))
        return real(key, content)

    monkeypatch.setattr(content_hashes, "content_id", content_id)
    for _ in range(3):
        memory.content_id(KEYS[0], bytes(bytearray(b"t" * 51_000)))
    assert hashed == [51_000]


def test_what_is_kept_is_bounded_in_bytes() -> None:
    memory = CaptureCache()
    for n in range(300):
        memory.content_id(KEYS[0], b"%06d" % n * 20_000)
        memory.content_id(KEYS[0], b"%06d" % n * 200_000)
    assert 0 < sum(len(content) for _, content in memory._content_ids) <= 64 * 131_072
