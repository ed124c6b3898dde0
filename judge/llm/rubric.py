"""Judge one trajectory by its criteria, in one request: met or not for each id, or a precise error.

Owns: the reply's format, asking, the one repair request that shows the judge its error, and checking ids, verdicts and
quotes. Refuses: the prompt (`judge.llm.rubric_prompt`), sending (`judge.llm.judge_model`), and guesses: a second
possible JSON object, a word in place of true or false, or a quote that the response does not contain. The time to read
a reply grows linearly with its length.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from judge.errors import JudgeFailed, JudgeUnanswered, JudgeUsage, ReplyRefused
from judge.llm.judge_model import JudgeAnswer
from judge.llm.rubric_prompt import RubricPrompt
from judge.llm.ruler import CUT, MAX_SHOWN_REPLY_CHARS, Ask, require_reply

MAX_REPLY_CHARS: Final = 400_000
MAX_REASON_CHARS: Final = 1_000
FORM: Final = '{"criteria": [{"id", "reason", "met"}]}'

_BRACKET: Final = re.compile(r"[{}\[\]]")


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
    document = _object_in(_after_reasoning(reply))
    if isinstance(document, _DuplicateKeys) or not isinstance(entries := document.get("criteria"), list):
        raise ReplyRefused(f"there is no JSON object {FORM} in the reply, or it has a key twice")
    by_id = _by_id(entries, ids)
    flat = None if response is None else [_flat(text) for text in response]
    return {name: _met(name, by_id[name], flat) for name in ids}


# Finding the object


class _DuplicateKeys(dict[str, Any]):
    """An object with a duplicate key: no verdict may depend on which value wins."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    return value if len(value) == len(pairs) else _DuplicateKeys(value)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_pairs)


def _after_reasoning(reply: str) -> str:
    """The reply after its reasoning, which ends with the last `</think>`, with or without a `<think>` before."""
    if len(reply) > MAX_REPLY_CHARS:
        raise ReplyRefused(f"the reply is {len(reply)} characters long; at most {MAX_REPLY_CHARS} are read")
    text = reply.rpartition("</think>")[2]
    if not text.strip():
        raise ReplyRefused("the reply is empty")
    return text


def _object_in(text: str) -> dict[str, Any]:
    """The only JSON object of the text. Words and code fences around it are skipped; other brackets are refused."""
    start = text.find("{")
    if start < 0:
        raise ReplyRefused(f"there is no JSON object {FORM} in the reply")
    if "<think>" in text[:start]:  # it may have dropped a verdict that is in its reasoning
        raise ReplyRefused("the reply ends in the middle of its reasoning")
    try:
        document, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as e:
        raise ReplyRefused("the reply's JSON is broken or cut off; give one JSON object and nothing else") from e
    if _BRACKET.search(text[:start]) or _BRACKET.search(text, end):
        raise ReplyRefused("there is more than one JSON object in the reply; give one and nothing else")
    assert isinstance(document, dict)
    return document


# Its content


def _by_id(entries: Sequence[Any], ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    known = set(ids)
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or isinstance(entry, _DuplicateKeys):
            raise ReplyRefused(f"entry {number} is not an object with id, reason and met, each once")
        name = entry.get("id")
        if not isinstance(name, str) or name.strip() not in known:
            raise ReplyRefused(f"entry {number} has the id {name!r:.60}; the ids are {', '.join(ids)}")
        if name.strip() in found:
            raise ReplyRefused(f"id {name.strip()} is there twice")
        found[name.strip()] = entry
    if absent := [name for name in ids if name not in found]:
        raise ReplyRefused(f"no verdict for: {', '.join(absent)}")
    return found


def _met(name: str, entry: Mapping[str, Any], response: Sequence[str] | None) -> CriterionVerdict:
    reason, met, quote = entry.get("reason"), entry.get("met"), entry.get("quote")
    if not isinstance(reason, str) or not reason.strip():
        raise ReplyRefused(f"{name} has no reason (a text)")
    if not isinstance(met, bool):
        raise ReplyRefused(f"`met` of {name} is {'missing' if met is None else repr(met)[:60]}: write true or false")
    if response is None or not met:
        return CriterionVerdict(met, _kept(reason))
    if not isinstance(quote, str) or not quote.strip():
        raise ReplyRefused(f"{name} is met and has no quote; where nothing in the response shows it, it is not met")
    quoted = _flat(quote)  # outside the loop: it may be as long as the reply
    if not any(quoted in text for text in response):
        raise ReplyRefused(f"the quote of {name} is not in the agent's own messages: {quote!r:.200}")
    return CriterionVerdict(met, _kept(reason), _kept(quote))


def _kept(text: str) -> str:
    """The text as the store accepts it: lone surrogates escaped, and limited in length."""
    return text.strip()[:MAX_REASON_CHARS].encode("utf-8", "backslashreplace").decode()


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
    """The reply's structured-output schema. Every property is required, as strict schemas demand."""
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


async def judge_rubric(prompt: RubricPrompt, ask: Ask) -> RubricVerdicts:
    """Ask the judge about a trajectory, and once more if its reply cannot be read.

    Raises:
        JudgeDown: it did not answer.
        JudgeUnanswered: neither reply could be read, or there was none.
    """
    first = await ask(prompt.messages)
    require_reply(first, prompt.messages, JudgeUsage())
    try:
        return RubricVerdicts(await _verdicts(prompt, first), first.version, first.spent)
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
        return RubricVerdicts(await _verdicts(prompt, second), second.version, spent)
    except ReplyRefused as e:
        raise JudgeUnanswered(
            "judge_unreadable",
            f"the judge's reply could not be read: {why}; nor could its second reply: {e}",
            spent=spent,
            exchange=[*again, {"role": "assistant", "content": second.text}],
        ) from e


async def _verdicts(prompt: RubricPrompt, answer: JudgeAnswer) -> list[CriterionVerdict]:
    try:  # a long reply takes a while to read: off the loop, which renews leases
        by_id = await asyncio.to_thread(read_rubric_reply, answer.text, list(prompt.ids), prompt.response)
    except ReplyRefused as e:
        if answer.finish_reason == "length":
            raise ReplyRefused(f"{e} ({CUT})") from e
        raise
    if answer.finish_reason == "length":  # the missing end is unknown
        raise ReplyRefused(CUT)
    places = {place: by_id[id_] for id_, place in prompt.ids.items()}
    return [places[place] for place in sorted(places)]


def _repair(prompt: RubricPrompt, answer: JudgeAnswer, why: str) -> list[dict[str, str]]:
    return [
        *prompt.messages,
        {"role": "assistant", "content": answer.text[:MAX_SHOWN_REPLY_CHARS] or "(nothing)"},
        {
            "role": "user",
            "content": f"That reply cannot be used: {why}. Reply again with one JSON object and nothing else: {FORM}, "
            f"and each of these ids exactly once: {', '.join(prompt.ids)}",
        },
    ]
