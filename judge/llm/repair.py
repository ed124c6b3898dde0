"""One request to a judge whose reply must be read: sent once, and once more with the error if it cannot be read.

Owns: the repair request, and which replies no repair would help. Refuses: prompts, reading a reply (the caller's
`read`), and sending (`judge.llm.judge_model`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from judge.errors import JudgeFailed, JudgeUnanswered, JudgeUsage, ReplyRefused
from judge.llm.judge_model import JudgeAnswer, Messages

MAX_SHOWN_REPLY_CHARS: Final = 4_000
CUT: Final = "it was cut off at judge.max_tokens; be brief"

Ask = Callable[[Messages], Awaitable[JudgeAnswer]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadReply(Generic[T]):
    """What was read from a judge's reply; the reply, the version that its provider reported, the cost, the requests."""

    verdicts: T
    reply: str
    version: str | None
    spent: JudgeUsage
    asked: int  # 1, or 2 with a repair


async def ask_and_read(
    messages: Sequence[dict[str, str]],
    ask: Ask,
    read: Callable[[str], T],
    form: str,
    ids: Iterable[str],
    *,
    hint: str = "",
) -> ReadReply[T]:
    """Ask the judge, and once more if `read` refuses its reply. `form`, `ids`: what the reply must be, with which ids.

    `read` may take long, and runs in a thread. `hint`: ends the message of an unreadable reply.

    Raises:
        JudgeDown: it did not answer.
        JudgeUnanswered: neither reply could be read, or there was none.
    """
    first = await ask(messages)
    _require_reply(first, messages, JudgeUsage())
    try:
        return ReadReply(await _read(first, read), first.text, first.version, first.spent, asked=1)
    except ReplyRefused as e:
        why = str(e)
    again = _repair(messages, first, why, f"{form}, and each of these ids exactly once: {', '.join(ids)}")
    try:
        second = await ask(again)
    except JudgeFailed as e:
        e.spent = first.spent + e.spent
        raise
    _require_reply(second, again, first.spent)
    spent = first.spent + second.spent
    try:
        return ReadReply(await _read(second, read), second.text, second.version, spent, asked=2)
    except ReplyRefused as e:
        raise JudgeUnanswered(
            "judge_unreadable",
            f"the judge's reply could not be read: {why}; nor could its second reply: {e}{hint}",
            spent=spent,
            exchange=[*again, {"role": "assistant", "content": second.text}],
        ) from e


def _require_reply(answer: JudgeAnswer, messages: Messages, before: JudgeUsage) -> None:
    """Raise JudgeUnanswered if the judge declined or its provider cut it off: a repair request would not help."""
    if answer.refusal is not None:
        code, why = "judge_declined", f"the judge declined to judge: {answer.refusal}"
    elif answer.finish_reason == "content_filter":
        code, why = "judge_filtered", "the filter of the judge's provider cut its reply off"
    else:
        return
    message = {"role": "assistant", "content": answer.refusal or answer.text}
    raise JudgeUnanswered(
        code,
        f"{why}. `hone score GROUP --debug` shows the prompt; another judge.model may accept it.",
        spent=before + answer.spent,
        exchange=[*messages, message],
    )


async def _read(answer: JudgeAnswer, read: Callable[[str], T]) -> T:
    try:  # a long reply takes a while to read: off the loop, which renews leases
        found = await asyncio.to_thread(read, answer.text)
    except ReplyRefused as e:
        if answer.finish_reason == "length":
            raise ReplyRefused(f"{e} ({CUT})") from e
        raise
    if answer.finish_reason == "length":  # the missing end is unknown
        raise ReplyRefused(CUT)
    return found


def _repair(messages: Sequence[dict[str, str]], answer: JudgeAnswer, why: str, wanted: str) -> list[dict[str, str]]:
    return [
        *messages,
        {"role": "assistant", "content": answer.text[:MAX_SHOWN_REPLY_CHARS] or "(nothing)"},
        {
            "role": "user",
            "content": f"That reply cannot be used: {why}. Reply again with one JSON object and nothing else: {wanted}",
        },
    ]
