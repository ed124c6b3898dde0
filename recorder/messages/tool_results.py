"""Compare the result of a tool call with the text in which an agent shows it to its model.

Owns: the results in a request's messages, the forms in which frameworks write an MCP result (text of its parts, JSON of
its structured content or of its parts, with a label before it, cut off), and which of several tool calls a result
answers. Pure. Refuses: queries, and which tool calls wait (`recorder.capture.lookups.waiting_tool_calls`).

Forms are compared by their hashes, so that no large result is read again. Only a result that equals none is looked for
inside the text, which needs the results themselves.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from recorder.messages.calls import Message
from recorder.messages.content_hashes import canonical_json
from recorder.messages.lineage import written_ids
from recorder.messages.plain_text import find_texts, parse_tool_requests

MOST_CHARS: Final = 500_000  # of a longer text only the text itself is hashed: parsing it as JSON takes too long
SEARCHED_CHARS: Final = 65_536  # of a shown text, in which results are looked for
CUT_CHARS: Final = 256  # two results that agree so far may be one that was cut off
# A shorter result is found inside a text only between these: "1" is no part of "11 items".
LONG_CHARS: Final = 32
_BEFORE: Final = frozenset("\n\"'>`(:")
_AFTER: Final = frozenset("\n\"'<`)")
CLOCKS_S: Final = 1.0  # the clocks of two hosts may differ so much
_MOST_PLACES: Final = 32
_DEPTH: Final = 4
# Under these keys frameworks put the content of a result that they write as JSON.
_INSIDE: Final = ("content", "result", "output", "structuredContent", "structured_content", "text")


@dataclass(frozen=True, slots=True)
class ResultForms:
    """Hashes of the forms of one result. `exact`: the same text or JSON value; `loose`: but for white space.

    `inside`: what the text holds if it is JSON; of a message only.
    """

    exact: frozenset[str]
    loose: frozenset[str]
    inside: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ShownResult:
    """A tool's result in a request: the request for it, by id or by position and match key, and its content.

    `tool_call_id` None: text of an agent that shows results without ids.
    """

    tool_call_id: str | None
    place: tuple[int, bytes] | None  # in the assistant message
    content: object


@dataclass(frozen=True, slots=True)
class ShownResults:
    """The results behind the last tool calls of a request's messages, as messages: they are read when they are needed.

    `key`: the project's `node_key`.
    """

    key: bytes
    asked: Message
    messages: Sequence[Message]

    @property
    def size_bytes(self) -> int:
        """The approximate size of the results."""
        return sum(len(content) if isinstance(content := m.get("content"), str) else 512 for m in self.messages)

    def read(self) -> list[ShownResult]:
        """Return the results, in order."""
        places: dict[str | None, deque[tuple[int, bytes]]] = defaultdict(deque)
        for at, id_, match in parse_tool_requests(self.key, self.asked):
            places[id_].append((at, match))
        found = []
        for message in self.messages:
            id_ = message.get("tool_call_id")
            known = id_ if isinstance(id_, str) and id_ else None
            place = places[known].popleft() if known is not None and places[known] else None
            found.append(ShownResult(known, place, message.get("content")))
        return found


def shown_results(key: bytes, messages: Sequence[Message]) -> ShownResults | None:
    """Return the results that a request brings back: those behind its last assistant message with tool calls.

    An agent that writes tool calls as text shows results as a user's text. None: the request brings back no result.
    """
    behind: list[Message] = []
    texts: list[Message] = []
    for message in reversed(messages):
        role = message.get("role")
        if role == "tool":
            behind.append(message)
        elif role == "user":
            texts.append(message)
        elif role == "assistant":
            if message.get("tool_calls"):
                return ShownResults(key, message, behind[::-1]) if behind else None
            if not behind:
                return ShownResults(key, message, texts[::-1]) if texts and written_ids([message]) else None
    return None


def forms_of_result(result: Mapping[str, Any] | None, error: str | None) -> ResultForms:
    """Return the forms of a tool call's MCP result; without one, those of its error."""
    texts: list[str] = []
    try:
        texts += result_texts(result, error)
        return _forms_of_result(texts, result)
    except RecursionError:
        return ResultForms(frozenset(map(_of_value, ("\n".join(texts), "".join(texts)))), frozenset())


def _forms_of_result(texts: Sequence[str], result: Mapping[str, Any] | None) -> ResultForms:
    values: list[object] = []
    structured = result.get("structuredContent") if result is not None else None
    if structured is not None:
        values.append(structured)
        if isinstance(structured, Mapping) and set(structured) == {"result"}:
            values.append(structured["result"])  # as MCP's SDK wraps a value that is no object
    whole = ["\n".join(texts), "".join(texts)] if texts or not values else []
    if len(texts) > 1 and sum(map(len, texts)) <= MOST_CHARS:
        values += [list(texts), [_parsed(text, text) for text in texts]]
    return _forms(whole, values)


def forms_of_content(content: object) -> ResultForms:
    """Return the forms of a message's content: its text, and what it holds if it is JSON."""
    whole: list[str] = []
    try:
        parts = list(find_texts(content))
        whole += ["\n".join(parts), "".join(parts)]
        return _forms_of_texts(parts, whole)
    except RecursionError:  # JSON that is nested too deep
        return ResultForms(frozenset(map(_of_value, whole)), frozenset())


def _forms_of_texts(parts: Sequence[str], whole: Sequence[str]) -> ResultForms:
    values: list[object] = []
    for text in dict.fromkeys([whole[1], *(parts if len(parts) > 1 else ())]):
        value = _parsed(text)
        if value is not None:
            values += _inside(value, _DEPTH)
    held = [list(find_texts(value)) for value in values if isinstance(value, list | Mapping)]
    inner = _forms([joined for texts in held if texts for joined in ("\n".join(texts), "".join(texts))], values)
    shown = _forms(whole, ())
    return ResultForms(shown.exact, shown.loose | inner.loose, inner.exact)


def result_texts(result: Mapping[str, Any] | None, error: str | None) -> list[str]:
    """Return the texts of an MCP result, or of the error in its place: of a refusal with a code, the message alone."""
    if result is not None:
        return list(find_texts(result.get("content")))
    code, colon, message = (error or "").partition(": ")
    return [message if colon and code.lstrip("-").isdigit() else error] if error else []


def same_result(result: Mapping[str, Any] | None, error: str | None) -> str:
    """Return a hash that two results share only if no model can tell them apart."""
    held = (
        {name: result[name] for name in ("content", "structuredContent", "isError") if result.get(name)}
        if result is not None
        else error
    )
    return _hash(canonical_json(held))


def is_shown(result: Mapping[str, Any] | None, error: str | None, content: object) -> int:
    """Return how many characters of a result a content shows inside a longer text; 0: it does not show it."""
    shown = "\n".join(find_texts(content))[:SEARCHED_CHARS].strip()
    texts = result_texts(result, error)
    if not texts and result is not None and result.get("structuredContent") is not None:
        texts = [json.dumps(result["structuredContent"], ensure_ascii=False)]
    text = "\n".join(texts).strip()
    if not text or not shown:
        return 0
    if len(text) <= len(shown):
        return len(text) if any(_stands_in(form, shown) for form in _written_forms(text)) else 0
    cut = shown[:CUT_CHARS]
    return CUT_CHARS if len(cut) == CUT_CHARS and text.startswith(cut) else 0


def _written_forms(text: str) -> Iterator[str]:
    """Yield a text as it is, and as JSON and Python write it in quotes."""
    yield text
    if not text.isprintable() or not text.isascii() or '"' in text or "'" in text or "\\" in text:
        yield from dict.fromkeys((json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]))


def _stands_in(text: str, shown: str) -> bool:
    if len(text) >= LONG_CHARS:
        return text in shown
    at = -1
    for _ in range(_MOST_PLACES):
        at = shown.find(text, at + 1)
        if at < 0:
            return False
        before, after = shown[:at].rstrip(" ")[-1:], shown[at + len(text) : at + len(text) + 1]
        if (not before or before in _BEFORE) and (not after or after in _AFTER):
            return True
    return False


def _forms(texts: Sequence[str], values: Sequence[object]) -> ResultForms:
    exact, loose = set(), set()
    for text in dict.fromkeys(texts):
        stripped = text.strip()
        exact.add(_hash(b"t" + stripped.encode(errors="surrogatepass")))
        if len(text) <= MOST_CHARS:
            loose.add(_hash("".join(stripped.split()).encode(errors="surrogatepass")))
            value = _parsed(stripped)
            if value is not None:
                exact.add(_of_value(value))
    exact |= {_of_value(value) for value in values}
    return ResultForms(frozenset(exact), frozenset(loose))


def _of_value(value: object) -> str:
    if isinstance(value, str):
        return _hash(b"t" + value.strip().encode(errors="surrogatepass"))
    return _hash(b"j" + canonical_json(value))


def _inside(value: object, depth: int) -> Iterator[object]:
    """Yield a JSON value and those in which frameworks put a result: a value under one key, or JSON in a text."""
    yield value
    if depth and isinstance(value, Mapping):
        for name in _INSIDE:
            if (held := value.get(name)) is not None:
                yield from _inside(held, depth - 1)
    elif depth and isinstance(value, str) and (parsed := _parsed(value)) is not None:
        yield from _inside(parsed, depth - 1)


def _parsed(text: str, default: object = None) -> object:
    """Return a text's JSON value, or `default`."""
    if len(text) > MOST_CHARS or text.lstrip()[:1] not in {"{", "[", '"'}:
        return default
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return default


def _hash(form: bytes) -> str:
    return blake2b(form, digest_size=10, person=b"result").hexdigest()


# --- which tool call a result answers


@dataclass(frozen=True, slots=True)
class WaitingResult:
    """The result of a tool call whose request is not known for certain."""

    id: str
    forms: ResultForms
    same: str  # `same_result`
    started_at: float
    finished_at: float
    own: bool = False  # it is known to be of the trajectory, and only its request is not certain
    tied: bool = False  # an equal one was joined by order, so this one may be the one that was meant


@dataclass(frozen=True, slots=True)
class ResultMatch:
    """The tool call that answers a request. `source`: the evidence, tool_call_id, result or order."""

    call: WaitingResult
    source: str
    ties: tuple[WaitingResult, ...] = ()  # equal results that were not chosen


def match_results(
    contents: Sequence[object],
    waiting: Sequence[Sequence[WaitingResult]],
    at: float,
    shown_in: Callable[[Sequence[WaitingResult], object], Mapping[str, int]],
) -> list[ResultMatch | None]:
    """Return for each content (a result in a request that began `at`) the tool call that it shows, or None.

    `waiting`: for each content, the tool calls that may be answered by it. `shown_in`: how many characters of each of
    these results a content shows (`is_shown`), by id. A content with several matching results that a model could tell
    apart has no match; among equal results the first to finish counts.
    """
    found: list[ResultMatch | None] = [None] * len(contents)
    # a call that ended later was not brought back, unless an equal one was taken in its place
    ended = [[one for one in calls if one.tied or one.finished_at <= at + CLOCKS_S] for calls in waiting]
    matching = [_matching(*pair, shown_in) for pair in zip(contents, ended, strict=True)]
    taken: set[str] = set()
    for equal in (False, True):  # results that match one content alone come first
        again = True
        while again:
            again = False
            for at_content, candidates in enumerate(matching):
                left = [one for one in candidates if one.id not in taken] if found[at_content] is None else []
                left = [one for one in left if one.own] or left
                if not left or (len(left) > 1 and not (equal and len({one.same for one in left}) == 1)):
                    continue
                one = min(left, key=lambda c: (c.finished_at > at, c.finished_at, c.id))
                ties = tuple(c for c in candidates if c.same == one.same and c is not one)
                alone = len(waiting[at_content]) == 1
                source = "order" if ties or one.tied else "tool_call_id" if alone else "result"
                found[at_content] = ResultMatch(one, source, ties)
                taken.add(one.id)
                again = True
    return found


def _matching(
    content: object,
    waiting: Sequence[WaitingResult],
    shown_in: Callable[[Sequence[WaitingResult], object], Mapping[str, int]],
) -> list[WaitingResult]:
    if not waiting:
        return []
    forms = forms_of_content(content)
    for shown, of_result in ((forms.exact, "exact"), (forms.inside, "exact"), (forms.loose, "loose")):
        equal = [one for one in waiting if not shown.isdisjoint(getattr(one.forms, of_result))]
        if equal:
            return equal
    if not forms.exact:
        return []
    lengths = shown_in(waiting, content)
    most = max(lengths.values(), default=0)
    return [one for one in waiting if most and lengths.get(one.id, 0) == most]
