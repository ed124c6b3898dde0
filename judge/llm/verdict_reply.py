"""A reply that is a JSON object with one entry for each id.

Owns: ids that cannot be guessed, the form of a reply, finding its only object, and its entries by id. Refuses: asking
and repairs (`judge.llm.repair`), what an entry means (`judge.llm.rubric`, `judge.llm.follow_up`,
`judge.llm.turn_critique`), and guesses: a second possible object, a duplicate key, or an id that is absent. The time to
read a reply grows linearly with its length.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from judge.errors import ReplyRefused

MAX_REPLY_CHARS: Final = 400_000
MAX_REASON_CHARS: Final = 1_000

_BRACKET: Final = re.compile(r"[{}\[\]]")


def draw_ids(letter: str, count: int, rng: random.Random) -> list[str]:
    """Distinct ids that cannot be guessed, each after a letter that says what they are of."""
    found: dict[str, None] = {}
    while len(found) < count:
        found[f"{letter}-{rng.getrandbits(32):08x}"] = None
    return list(found)


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """The form of a reply: `{<name>: [{"id", …}]}`. `shown`: how it is named to the judge."""

    name: str
    fields: Mapping[str, Mapping[str, Any]]  # of an entry besides its id, with their schemas, in order

    @property
    def shown(self) -> str:
        """The form, for the judge."""
        names = ", ".join(json.dumps(name) for name in ("id", *self.fields))
        return f"{{{json.dumps(self.name)}: [{{{names}}}]}}"

    def schema(self) -> dict[str, Any]:
        """The structured-output schema. Every property is required, as strict schemas demand."""
        properties = {"id": {"type": "string"}, **self.fields}
        entry = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        schema = {
            "type": "object",
            "properties": {self.name: {"type": "array", "items": entry}},
            "required": [self.name],
            "additionalProperties": False,
        }
        return {"type": "json_schema", "json_schema": {"name": "verdicts", "strict": True, "schema": schema}}


class _DuplicateKeys(dict[str, Any]):
    """An object with a duplicate key: no verdict may depend on which value wins."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    return value if len(value) == len(pairs) else _DuplicateKeys(value)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_pairs)


def read_entries(reply: str, form: ReplyForm, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The entry for each of `ids`, in their order.

    Raises:
        ReplyRefused: there is no object of the form, or more than one; ids are missing, duplicate or unknown.
    """
    document = _object_in(_after_reasoning(reply), form)
    if isinstance(document, _DuplicateKeys) or not isinstance(entries := document.get(form.name), list):
        raise ReplyRefused(f"there is no JSON object {form.shown} in the reply, or it has a key twice")
    by_id = _by_id(entries, form, ids)
    return {name: by_id[name] for name in ids}


def _after_reasoning(reply: str) -> str:
    """The reply after its reasoning, which ends with the last `</think>`, with or without a `<think>` before."""
    if len(reply) > MAX_REPLY_CHARS:
        raise ReplyRefused(f"the reply is {len(reply)} characters long; at most {MAX_REPLY_CHARS} are read")
    text = reply.rpartition("</think>")[2]
    if not text.strip():
        raise ReplyRefused("the reply is empty")
    return text


def _object_in(text: str, form: ReplyForm) -> dict[str, Any]:
    """The only JSON object of the text. Words and code fences around it are skipped; other brackets are refused."""
    start = text.find("{")
    if start < 0:
        raise ReplyRefused(f"there is no JSON object {form.shown} in the reply")
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


def _by_id(entries: Sequence[Any], form: ReplyForm, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    known = set(ids)
    *others, last = ("id", *form.fields)
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or isinstance(entry, _DuplicateKeys):
            raise ReplyRefused(f"entry {number} is not an object with {', '.join(others)} and {last}, each once")
        name = entry.get("id")
        if not isinstance(name, str) or name.strip() not in known:
            raise ReplyRefused(f"entry {number} has the id {name!r:.60}; the ids are {', '.join(ids)}")
        if name.strip() in found:
            raise ReplyRefused(f"id {name.strip()} is there twice")
        found[name.strip()] = entry
    if absent := [name for name in ids if name not in found]:
        raise ReplyRefused(f"no verdict for: {', '.join(absent)}")
    return found


def read_reason(name: str, entry: Mapping[str, Any]) -> str:
    """The reason of an entry, as the store accepts it. Raises ReplyRefused if there is none."""
    reason = entry.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        raise ReplyRefused(f"{name} has no reason (a text)")
    return storable(reason)


def storable(text: str) -> str:
    """The text as the store accepts it: lone surrogates escaped, and limited in length."""
    return text.strip()[:MAX_REASON_CHARS].encode("utf-8", "backslashreplace").decode()
