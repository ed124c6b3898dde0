"""One request judges one run by all its criteria.

Owns: the form of the reply, asking, and the one repair attempt that shows the judge its error. Refuses: how a prompt is
written (`judge.llm.rubric_prompt`), read (`judge.llm.rubric_reader`) or sent (`judge.llm.model`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from judge.errors import JudgeFailed, JudgeUnanswered, ReplyRefused, Spent
from judge.llm.model import Answer
from judge.llm.rubric_prompt import RubricPrompt
from judge.llm.rubric_reader import FORM, Met, read_rubric_reply
from judge.llm.ruler import CUT, MAX_SHOWN_REPLY_CHARS, Ask, require_reply


@dataclass(frozen=True, slots=True)
class Checked:
    """What the judge said about one run: a verdict for each criterion, in their order."""

    verdicts: Sequence[Met]
    version: str | None
    spent: Spent


def reply_format(*, evidence: bool) -> dict[str, Any]:
    """Structured output of a reply. Every property is required, as strict schemas want it."""
    properties = {"id": {"type": "string"}, "reason": {"type": "string"}, "met": {"type": "boolean"}}
    properties |= {"quote": {"type": "string"}} if evidence else {}
    entry = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    schema = {
        "type": "object",
        "properties": {"criteria": {"type": "array", "items": entry}},
        "required": ["criteria"],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "verdicts", "strict": True, "schema": schema}}


async def check(prompt: RubricPrompt, ask: Ask) -> Checked:
    """Ask the judge about a run, and once more where its reply cannot be read.

    Raises:
        JudgeDown: it did not answer.
        JudgeUnanswered: neither reply could be read, or there was none.
    """
    first = await ask(prompt.messages)
    require_reply(first, prompt.messages, Spent())
    try:
        return Checked(await _verdicts(prompt, first), first.version, first.spent)
    except ReplyRefused as e:
        why = str(e)
    again = _repair(prompt, first, why)
    try:
        second = await ask(again)
    except JudgeFailed as e:
        e.spent = first.spent + e.spent
        raise
    require_reply(second, again, first.spent)
    spent = first.spent + second.spent
    try:
        return Checked(await _verdicts(prompt, second), second.version, spent)
    except ReplyRefused as e:
        raise JudgeUnanswered(
            "judge_unreadable",
            f"the judge's reply could not be read: {why}; nor, after it was told so: {e}",
            spent=spent,
            exchange=[*again, {"role": "assistant", "content": second.text}],
        ) from e


async def _verdicts(prompt: RubricPrompt, answer: Answer) -> list[Met]:
    try:  # a long reply takes a while to read: off the loop, which renews leases
        by_id = await asyncio.to_thread(read_rubric_reply, answer.text, list(prompt.ids), prompt.response)
    except ReplyRefused as e:
        if answer.finish_reason == "length":
            raise ReplyRefused(f"{e} ({CUT})") from e
        raise
    if answer.finish_reason == "length":  # nobody knows what it would have gone on to say
        raise ReplyRefused(CUT)
    places = {place: by_id[id_] for id_, place in prompt.ids.items()}
    return [places[place] for place in sorted(places)]


def _repair(prompt: RubricPrompt, answer: Answer, why: str) -> list[dict[str, str]]:
    return [
        *prompt.messages,
        {"role": "assistant", "content": answer.text[:MAX_SHOWN_REPLY_CHARS] or "(nothing)"},
        {
            "role": "user",
            "content": f"That reply cannot be used: {why}. Reply again with one JSON object and nothing else: {FORM}, "
            f"and each of these ids exactly once: {', '.join(prompt.ids)}",
        },
    ]
