"""Judge one trajectory by its criteria, in one request: met or not for each id, or a precise error.

Owns: the meaning of an entry of the reply: a verdict, its reason, and a quote where one is required. Refuses: the
prompt (`judge.llm.rubric_prompt`), finding the entries (`judge.llm.verdict_reply`), asking and repairs
(`judge.llm.repair`), and guesses: a word in place of true or false, or a quote that the response does not contain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from judge.errors import JudgeUsage, ReplyRefused
from judge.llm.repair import Ask, ask_and_read
from judge.llm.rubric_prompt import RubricPrompt
from judge.llm.verdict_reply import ReplyForm, read_entries, read_reason, storable

_FORM: Final = ReplyForm("criteria", {"reason": {"type": "string"}, "met": {"type": "boolean"}})


@dataclass(frozen=True, slots=True)
class CriterionVerdict:
    """The verdict on one criterion, and why."""

    met: bool
    reason: str
    quote: str = ""


def read_rubric_reply(
    reply: str, ids: Sequence[str], response: Sequence[str] | None = None
) -> dict[str, CriterionVerdict]:
    """The verdict for each of `ids`. With `response`, a criterion that is met must quote one of these texts.

    Raises:
        ReplyRefused: there is no verdict, or more than one; ids are missing, duplicate or unknown; a reason or a
            verdict is missing; a quote is not in the response.
    """
    by_id = read_entries(reply, _FORM, ids)
    flat = None if response is None else [_flat(text) for text in response]
    return {name: _met(name, entry, flat) for name, entry in by_id.items()}


def _met(name: str, entry: Mapping[str, Any], response: Sequence[str] | None) -> CriterionVerdict:
    reason, met, quote = read_reason(name, entry), entry.get("met"), entry.get("quote")
    if not isinstance(met, bool):
        raise ReplyRefused(f"`met` of {name} is {'missing' if met is None else repr(met)[:60]}: write true or false")
    if response is None or not met:
        return CriterionVerdict(met, reason)
    if not isinstance(quote, str) or not quote.strip():
        raise ReplyRefused(f"{name} is met and has no quote; where nothing in the response shows it, it is not met")
    quoted = _flat(quote)  # outside the loop: it may be as long as the reply
    if not any(quoted in text for text in response):
        raise ReplyRefused(f"the quote of {name} is not in the agent's own messages: {quote!r:.200}")
    return CriterionVerdict(met, reason, storable(quote))


def _flat(text: str) -> str:
    """The text as quotes are compared: any white space is one space."""
    return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class RubricVerdicts:
    """The judge's verdicts on one trajectory, one for each criterion, in order."""

    verdicts: Sequence[CriterionVerdict]
    version: str | None
    spent: JudgeUsage


def reply_format(*, evidence: bool) -> dict[str, Any]:
    """The reply's structured-output schema."""
    quote = {"quote": {"type": "string"}} if evidence else {}
    return ReplyForm(_FORM.name, {**_FORM.fields, **quote}).schema()


async def judge_rubric(prompt: RubricPrompt, ask: Ask) -> RubricVerdicts:
    """Ask the judge about a trajectory, and once more if its reply cannot be read.

    Raises:
        JudgeDown: it did not answer.
        JudgeUnanswered: neither reply could be read, or there was none.
    """
    ids = list(prompt.ids)
    read = partial(read_rubric_reply, ids=ids, response=prompt.response)
    asked = await ask_and_read(prompt.messages, ask, read, _FORM.shown, ids)
    places = {place: asked.verdicts[id_] for id_, place in prompt.ids.items()}
    return RubricVerdicts([places[place] for place in sorted(places)], asked.version, asked.spent)
