"""JSON with long texts is the JSON that orjson writes."""

from __future__ import annotations

from types import ModuleType

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.capture import rows
from recorder.messages import content_hashes
from recorder.messages.long_texts import LONG_CHARS, dump_long_texts

PARTS = st.sampled_from(["a", "\n", '"', "\\", "é", "漢", "🚚", "\x00", "\u2028", "</script>"])


@given(part=st.lists(PARTS, min_size=1, max_size=8).map("".join), extra=st.integers(1, 70_000))
def test_a_long_text_is_written_as_orjson_writes_it(part: str, extra: int) -> None:
    text = (part * (1 + (LONG_CHARS + extra) // len(part)))[: LONG_CHARS + extra]
    value = {"b": [1, None, {"content": text}], "a": "short", "c": text}
    assert dump_long_texts(value) == orjson.dumps(value)
    assert dump_long_texts(value, orjson.OPT_SORT_KEYS) == orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def test_half_a_character_is_refused_as_orjson_refuses_it() -> None:
    with pytest.raises(TypeError):
        dump_long_texts({"content": "a" * LONG_CHARS + "\ud83d"})


@pytest.mark.parametrize("writer", [content_hashes, rows])
def test_only_a_message_with_a_long_text_is_written_in_pieces(
    monkeypatch: pytest.MonkeyPatch, writer: ModuleType
) -> None:
    seen: list[object] = []

    def dump(value: object, option: int = 0) -> bytes:
        seen.append(value)
        return dump_long_texts(value, option)

    monkeypatch.setattr(writer, "dump_long_texts", dump)
    write = content_hashes.canonical_json if writer is content_hashes else rows.json_text
    long: dict[str, object] = {"content": "a" * (LONG_CHARS + 1)}
    others: list[object] = [{"content": "a" * LONG_CHARS}, {"content": 5}, {"content": None}, {}, [], "a" * LONG_CHARS]
    for value in (long, *others):
        assert orjson.loads(write(value)) == value
    assert seen == [long]
