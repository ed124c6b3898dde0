"""What judges were asked, packed: the first request whole, the others by it, each read back to the character."""

from __future__ import annotations

import json
import random
import zlib

from hypothesis import given
from hypothesis import strategies as st

from recorder.queue.judging import records
from recorder.queue.judging.records import JudgePrompt

LINES = st.text(st.sampled_from("ab1\n|.\\{\u2028\r"), max_size=30)
WORDS = st.dictionaries(st.text(st.sampled_from("ab1|."), min_size=1, max_size=3), LINES, max_size=4)


@given(text=LINES, first=LINES, words=WORDS)
def test_what_is_read_back_is_what_was_written(text: str, first: str, words: dict[str, str]) -> None:
    lines = json.loads(json.dumps(records.encode_lines(text, first, words)))
    assert records.decode_lines(lines, first, words) == text


def test_lines_in_another_order_with_other_words_are_numbers() -> None:
    first = "these: t-1, t-2\n{id t-1, cut n-1}\n{id t-2}"
    other = "these: t-8, t-9\n{id t-8}\n{id t-9, cut n-5}"
    words = {"t-1": "t-9", "t-2": "t-8", "n-1": "n-5"}
    assert records.encode_lines(other, first, words) == ["these: t-8, t-9", 2, 1]


def request(number: int, documents: list[str]) -> JudgePrompt:
    """One of several requests about the group that holds these documents."""
    ids = {f"run{at}": f"t-{at}-{number}" for at in range(len(documents))}
    shown = list(zip(ids.values(), documents, strict=True))
    shown = shown[number % len(shown) :] + shown[: number % len(shown)]
    text = "\n".join([", ".join(ids.values()), *(f"{id_}: {document}" for id_, document in shown)])
    messages = [{"role": "system", "content": "judge\nthem"}, {"role": "user", "content": text}]
    return JudgePrompt(None, messages, number, ids)


async def test_each_of_several_requests_is_read_back_and_takes_next_to_nothing() -> None:
    rng = random.Random(0)
    documents = [rng.randbytes(20_000).hex() for _ in range(4)]
    asked = [request(number, documents) for number in range(8)]
    of_run = JudgePrompt("run0", [{"role": "user", "content": "alone"}])
    packed = await records.pack_prompts([*asked, of_run])
    alone = await records.pack_prompts([asked[0], of_run])
    assert packed is not None
    assert alone is not None
    assert len(packed) < 1.01 * len(alone)
    for number, one in enumerate(asked):
        assert records._unpack(packed, number) == [JudgePrompt(None, one.messages, number), of_run]
    assert records._unpack(packed, 8) == [of_run]
    assert records._unpack(alone, 1) == [of_run]


def test_what_was_kept_before_is_read_as_the_first_request() -> None:
    messages = [{"role": "user", "content": "which?"}]
    older = zlib.compress(json.dumps([{"trajectory_id": None, "messages": messages}]).encode())
    oldest = zlib.compress(json.dumps(messages).encode())
    for packed in (older, oldest):
        assert records._unpack(packed, 0) == [JudgePrompt(None, messages)]
        assert records._unpack(packed, 1) == []
