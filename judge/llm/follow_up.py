"""Judge one trajectory by what came next after its answers, in one request: a verdict for each answer.

Owns: the words of a verdict, and the meaning of an entry of the reply. Refuses: the prompt
(`judge.llm.follow_up_prompt`), finding the entries (`judge.llm.verdict_reply`), asking and repairs
(`judge.llm.repair`), what a verdict is worth (`judge.rewards.follow_ups`), and guesses: any other word is no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from judge.errors import ReplyRefused
from judge.llm.follow_up_prompt import FollowUpPrompt
from judge.llm.repair import Ask, ReadReply, ask_and_read
from judge.llm.verdict_reply import ReplyForm, read_entries, read_reason


class Verdict(StrEnum):
    """What a follow-up tells about the answer before it."""

    SATISFIED = "satisfied"
    REPHRASED = "rephrased"
    CORRECTED = "corrected"
    ABANDONED = "abandoned"
    UNRELATED = "unrelated"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class TurnVerdict:
    """The verdict on one answer, and why."""

    verdict: Verdict
    reason: str


FORM: Final = ReplyForm(
    "answers", {"reason": {"type": "string"}, "verdict": {"type": "string", "enum": [str(one) for one in Verdict]}}
)


def read_follow_up_reply(reply: str, ids: Sequence[str]) -> dict[str, TurnVerdict]:
    """The verdict for each of `ids`, in their order.

    Raises:
        ReplyRefused: there is no verdict, or more than one; ids are missing, duplicate or unknown; a reason is missing;
            a verdict is another word.
    """
    return {name: _verdict(name, entry) for name, entry in read_entries(reply, FORM, ids).items()}


def _verdict(name: str, entry: Mapping[str, Any]) -> TurnVerdict:
    reason, word = read_reason(name, entry), entry.get("verdict")
    if not isinstance(word, str) or word.strip().lower() not in set(Verdict):
        given = "missing" if word is None else repr(word)[:60]
        raise ReplyRefused(f"`verdict` of {name} is {given}: write one of {', '.join(Verdict)}")
    return TurnVerdict(Verdict(word.strip().lower()), reason)


async def judge_follow_ups(prompt: FollowUpPrompt, ask: Ask) -> ReadReply[list[TurnVerdict]]:
    """Ask the judge about a trajectory, and once more if its reply cannot be read; one verdict a turn, in order.

    Raises:
        JudgeDown: it did not answer.
        JudgeUnanswered: neither reply could be read, or there was none.
    """
    ids = list(prompt.ids)

    def read(reply: str) -> list[TurnVerdict]:
        return list(read_follow_up_reply(reply, ids).values())

    return await ask_and_read(prompt.messages, ask, read, FORM.shown, ids)
