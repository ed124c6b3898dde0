"""Join tool calls to the requests that they answer, when a model call brings their results back.

A tool call through the gateway waits if several requests were equal when it came: of several trajectories, or of one
answer. Owns: the evidence that such a call keeps, and which of the waiting calls a result is joined to. Runs on an
`Executor`, in the transaction that writes the model call. Refuses: comparing results
(`recorder.messages.tool_results`), and what is known when the tool is called (`recorder.capture.tool_calls`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from recorder.capture.lookups import statements as sql
from recorder.ids import first_id_at
from recorder.messages.calls import ParentCall
from recorder.messages.tool_results import (
    ResultForms,
    ShownResult,
    ShownResults,
    WaitingResult,
    forms_of_result,
    is_shown,
    match_results,
    same_result,
)
from recorder.states import Confidence
from recorder.store.write_backends import Executor, Row

KEPT_S: Final = 86_400.0  # how long a tool call waits for its result: a tool may work for hours, a person may be asked
_MOST_SEARCHED: Final = 32  # different results that are looked for inside one text
_READ_CHARS: Final = 262_144  # a longer result is not read again
_ALL_READ_CHARS: Final = 1_000_000  # in one transaction, which other calls wait for

Slot = tuple[str, int, int]  # call, choice, position


@dataclass(frozen=True, slots=True)
class BroughtResults:
    """The results in a request, and the choice whose tool calls they answer."""

    parent: ParentCall
    shown: ShownResults
    started_at: float  # of the request


@dataclass(slots=True)
class ToolCallJoins:
    """What the results in some requests change."""

    joined: Sequence[Row]  # of `JOIN_TOOL_CALLS`
    tied: Sequence[Row]  # of `TIE_TOOL_CALLS`: evidence of calls that wait on after an equal one was joined by order


@dataclass(slots=True)
class _WaitingCall:
    """A waiting tool call. `slot`: the request that it is joined to until its result comes back."""

    result: WaitingResult
    kept: Mapping[str, Any]  # `tool_call_evidence`
    trajectory_id: str | None
    slot: Slot | None
    source: str
    confidence: str


@dataclass(slots=True)
class _OpenRequest:
    """A request that no tool call answers for certain, and the tool calls that may."""

    slot: Slot
    tool_call_id: str | None
    trajectory_id: str
    match: bytes
    waiting: list[_WaitingCall]


def tool_call_evidence(
    calls: Iterable[str], key: str, result: Mapping[str, Any] | None, error: str | None, chars: int
) -> Mapping[str, Any]:
    """Return what a waiting tool call keeps: the model calls whose requests it may answer, and its result's forms.

    `key`: the caller's key family; `chars`: the length of the stored result.
    """
    forms = forms_of_result(result, error)
    return {
        "calls": sorted(set(calls)),
        "key": key,
        "exact": sorted(forms.exact),
        "loose": sorted(forms.loose),
        "same": same_result(result, error),
        "chars": chars,
    }


def join_brought_results(ex: Executor, brought: Sequence[BroughtResults]) -> ToolCallJoins:
    """Return the joins of the tool calls that these results belong to. One query if no tool call waits."""
    joins = ToolCallJoins([], [])
    since = first_id_at("tool", time.time() - KEPT_S)
    rows = ex.all(sql.WAITING_TOOL_CALLS, calls=sorted({one.parent.call_id for one in brought}), since=since)
    if not rows:
        return joins
    requests = _open_requests(rows)
    search = _ResultSearch(ex)
    joined: dict[str, Row] = {}
    tied: dict[str, Mapping[str, Any]] = {}
    for one in sorted(brought, key=lambda b: b.started_at):
        own = [r for r in requests if r.slot[:2] == (one.parent.call_id, one.parent.choice)]
        for row in _join(one, own, search, joined, tied):
            joined[row[-1]] = row
    kept = [(orjson.dumps(evidence).decode(), id_) for id_, evidence in tied.items() if id_ not in joined]
    return ToolCallJoins(list(joined.values()), kept)


def _open_requests(rows: Sequence[Row]) -> list[_OpenRequest]:
    calls: dict[str, _WaitingCall] = {}
    requests: dict[Slot, _OpenRequest] = {}
    for row in rows:
        slot = (row[0], row[1], row[2])
        request = requests.setdefault(slot, _OpenRequest(slot, row[3], row[4], bytes(row[5]), []))
        if (call := calls.get(row[6])) is None:
            call = calls[row[6]] = _waiting_call(row)
        if slot[0] in call.kept["calls"] and call.trajectory_id in (None, request.trajectory_id):
            request.waiting.append(call)
    return [requests[slot] for slot in sorted(requests)]


def _waiting_call(row: Row) -> _WaitingCall:
    kept = orjson.loads(row[15])
    kept["calls"] = frozenset(kept["calls"])
    forms = ResultForms(frozenset(kept["exact"]), frozenset(kept["loose"]))
    slot = (row[8], row[9], row[10]) if row[8] is not None else None
    result = WaitingResult(
        row[6], forms, kept["same"], row[13], row[14], own=row[7] is not None, tied=bool(kept.get("tied"))
    )
    return _WaitingCall(result, kept, row[7], slot, row[11], row[12])


def _join(
    brought: BroughtResults,
    requests: Sequence[_OpenRequest],
    search: _ResultSearch,
    taken: Collection[str],
    tied: dict[str, Mapping[str, Any]],
) -> list[Row]:
    """Return the rows of the tool calls whose results one request brings back.

    Adds the evidence of equal calls that wait on to `tied`.
    """
    answered = [pair for pair in _answered(brought.shown.read(), requests) if pair[1] is not None]
    waiting = [[one for one in request.waiting if one.result.id not in taken] for request, _ in answered]
    by_id = {one.result.id: one for calls in waiting for one in calls}
    search.chars = {id_: one.kept["chars"] for id_, one in by_id.items()}
    found = match_results(
        [shown.content for _, shown in answered if shown is not None],
        [[replace(one.result, tied=one.result.tied or one.result.id in tied) for one in calls] for calls in waiting],
        brought.started_at,
        search.lengths,
    )
    rows, filled = [], set()
    for (request, _), match in zip(answered, found, strict=True):
        if match is not None:
            rows.append(_row(request, by_id[match.call.id], match.source))
            filled.add(request.slot)
            for tie in match.ties:
                tied[tie.id] = _tied_evidence(tied.get(tie.id, by_id[tie.id].kept), by_id[match.call.id].kept)
    for row in rows:
        del by_id[row[-1]]
    return rows + _moved(requests, filled, by_id.values())


def _tied_evidence(kept: Mapping[str, Any], joined: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the evidence of a call after an equal one was joined by order: from now on it may stand for that one."""
    calls = {*kept["calls"], *(joined["calls"] if joined["key"] == kept["key"] else ())}
    return {**kept, "calls": sorted(calls), "tied": True}


def _answered(
    results: Sequence[ShownResult], requests: Sequence[_OpenRequest]
) -> list[tuple[_OpenRequest, ShownResult | None]]:
    """Return each request with the result that is shown for it: by its id, by its place, or in a text without ids.

    Some providers give all calls of an answer one id: then the place counts.
    """
    ids = Counter(one.tool_call_id for one in results)
    by_id = {one.tool_call_id: one for one in results if one.tool_call_id is not None and ids[one.tool_call_id] == 1}
    issued = {request.tool_call_id for request in requests}
    by_place = {one.place: one for one in results if one.tool_call_id not in by_id.keys() & issued}
    text = next((one for one in results if one.tool_call_id is None), None)
    return [
        (request, by_id.get(request.tool_call_id or "") or by_place.get((request.slot[2], request.match)) or text)
        for request in requests
    ]


def _moved(requests: Sequence[_OpenRequest], filled: set[Slot], left: Iterable[_WaitingCall]) -> list[Row]:
    """Return the rows of calls of this answer whose place another call took: they get the equal requests still free."""
    rows = []
    for call in sorted(left, key=lambda one: (one.result.started_at, one.result.id)):
        if call.slot not in filled:
            continue
        free = [r for r in requests if r.slot not in filled and call in r.waiting]
        if free:
            rows.append(_row(free[0], call, call.source))
            filled.add(free[0].slot)
    return rows


def _row(request: _OpenRequest, call: _WaitingCall, source: str) -> Row:
    """Return the row of a joined call. One whose trajectory is known keeps the evidence of that."""
    confidence = Confidence.HINT if source == "order" else Confidence.EXACT
    if call.trajectory_id is not None:
        source, confidence = call.source, Confidence(call.confidence)
    return (
        request.trajectory_id,
        *request.slot,
        request.tool_call_id,
        source,
        confidence.value,
        call.result.id,
    )


class _ResultSearch:
    """Looks for waiting calls' results inside a text. Reads each result once, and not the very long ones."""

    def __init__(self, ex: Executor) -> None:
        self._ex = ex
        self._read: dict[str, tuple[Mapping[str, Any] | None, str | None]] = {}
        self._left = _ALL_READ_CHARS
        self.chars: Mapping[str, int] = {}

    def lengths(self, waiting: Sequence[WaitingResult], content: object) -> dict[str, int]:
        """Return how many characters of each result the content shows, by id; equal results are looked for once."""
        by_same: dict[str, list[str]] = {}
        for one in waiting:
            by_same.setdefault(one.same, []).append(one.id)
        first = [ids[0] for ids in by_same.values()][-_MOST_SEARCHED:]
        self._load([id_ for id_ in first if id_ not in self._read])
        lengths = {id_: is_shown(*self._read[id_], content) for id_ in first if id_ in self._read}
        return {id_: lengths[ids[0]] for ids in by_same.values() if ids[0] in lengths for id_ in ids}

    def _load(self, ids: Sequence[str]) -> None:
        wanted = []
        for id_ in ids:
            chars = self.chars.get(id_, 0)
            if chars <= min(_READ_CHARS, self._left):
                self._left -= chars
                wanted.append(id_)
        for id_, result, error in self._ex.all(sql.TOOL_RESULTS, ids=wanted) if wanted else ():
            self._read[id_] = (orjson.loads(result) if result is not None else None, error)
