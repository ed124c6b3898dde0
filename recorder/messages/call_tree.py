"""The tree of a trajectory's calls: its main leaf and the path to it, retries, unselected choices, and call kinds.

Owns: these, as pure functions over plain facts. Refuses: queries and storage (`recorder.queue.groups.call_kinds` sets
kinds in the store), and which call another continues (`recorder.messages.lineage`).

A call's kind is main, sub-agent or auxiliary (a title, a summary). It is decided when the trajectory has ended, because
only then is it known which thread continued. Kinds that a client states (`x-hone-turn`) are not changed.

A thread is a call that continues no other call of the trajectory, with all calls that continue it. The rule is
conservative. Two threads with the same tools are both main (parallel samples, a compacted history, an agent without
memory), and so are consecutive stages, whatever their tools. A side thread has other tools and begins while a main
thread is busy: one of its calls runs, or it waits for tools and continues later. A side thread with tools is a
sub-agent's; one without is auxiliary. A first thread without tools is auxiliary if it is a single call about the exact
text with which the main thread then begins, and the main thread does not use its answer (Claude Code asks for a topic
first; a planner's plan is used).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from recorder.messages.calls import ParentCall
from recorder.states import CallKind, CallState


@dataclass(frozen=True, slots=True)
class CallNode:
    """The facts of a call that the tree needs."""

    id: str
    parent: ParentCall | None
    choices: int
    state: CallState
    call_kind: CallKind
    superseded: bool
    at: float


@dataclass(frozen=True, slots=True)
class RetryAttempt:
    """The facts that the retry rule needs, about one of a trajectory's calls with the same body."""

    call_id: str
    retry_count: int
    state: CallState
    started_at: float
    continued: bool


def find_superseded(attempts: Iterable[RetryAttempt]) -> dict[str, str]:
    """Return the superseded requests, each with the call that supersedes it: a retry and its request are one turn.

    The request that counts is the continued one (each, if several were), else the last one, a complete one first. Equal
    requests without a retry between them stay separate samples.
    """
    superseded: dict[str, str] = {}
    for turn in _turns(attempts):
        continued = [a for a in turn if a.continued]
        last = max(continued or turn, key=lambda a: (a.state is CallState.COMPLETE, *_age(a)))
        superseded |= {a.call_id: last.call_id for a in turn if a is not last and not a.continued}
    return superseded


def _age(attempt: RetryAttempt) -> tuple[int, float, str]:
    return attempt.retry_count, attempt.started_at, attempt.call_id


def _turns(attempts: Iterable[RetryAttempt]) -> list[list[RetryAttempt]]:
    """Group requests: each retry joins the request that it repeats.

    A retry repeats the request with the next lower retry count that no other retry repeats; among several, one that did
    not complete, then the newest.
    """
    turns: list[list[RetryAttempt]] = []
    for attempt in sorted(attempts, key=_age):
        before = [turn for turn in turns if turn[-1].retry_count < attempt.retry_count]
        if not before:
            turns.append([attempt])
            continue
        last = max(before, key=lambda t: (t[-1].retry_count, t[-1].state is not CallState.COMPLETE, *_age(t[-1])))
        last.append(attempt)
    return turns


def continued_choices(calls: Iterable[CallNode]) -> set[ParentCall]:
    """Return the choices that a call continues."""
    return {c.parent for c in calls if c.parent is not None}


def main_leaf(calls: Sequence[CallNode]) -> ParentCall | None:
    """Return the last sampled choice of the main path (the judge sees that path), or None if no call is complete."""
    main = [
        c
        for c in calls
        if c.call_kind is CallKind.MAIN and c.state is CallState.COMPLETE and not c.superseded and c.choices
    ]
    return ParentCall(max(main, key=lambda c: (c.at, c.id)).id, 0) if main else None


def path_to(calls: Mapping[str, CallNode], leaf: ParentCall | None) -> list[ParentCall]:
    """Return the choices from the root to `leaf`, as far as the calls are known."""
    path: list[ParentCall] = []
    while leaf is not None and leaf.call_id in calls:
        path.append(leaf)
        leaf = calls[leaf.call_id].parent
    return path[::-1]


def find_unselected(calls: Iterable[CallNode], path: Collection[ParentCall]) -> set[ParentCall]:
    """Return the choices of n>1 calls that no call continues and that do not end the main path."""
    nodes = list(calls)
    chosen = continued_choices(nodes) | set(path)
    every = (ParentCall(c.id, index) for c in nodes if c.choices > 1 for index in range(c.choices))
    return {choice for choice in every if choice not in chosen}


def split_choices(calls: Sequence[CallNode]) -> list[int]:
    """Return the choices of a first call with n>1 that become trajectories of their own, because no call continues it.

    The first choice stays with the trajectory and is not returned. Empty if the rule does not apply.
    """
    kept = [c for c in calls if not c.superseded and c.call_kind is CallKind.MAIN]
    if len(kept) != 1 or kept[0].parent is not None or kept[0].state is not CallState.COMPLETE:
        return []
    return list(range(1, kept[0].choices))


@dataclass(frozen=True, slots=True)
class CallFacts:
    """The facts of a call that the rule for kinds needs. Times are unix seconds."""

    id: str
    parent: str | None  # the call that it continues
    tools: bytes | None  # identifies its tools; None: it has none
    began: float
    ended: float | None
    calls_tools: bool  # whether its answer calls tools


@dataclass(frozen=True, slots=True)
class ThreadTexts:
    """The texts of a thread's first call that the rule compares."""

    user: str = ""  # its first user message
    prompt: str = ""  # its whole prompt
    answer: str = ""


@dataclass(slots=True)
class _Thread:
    first: CallFacts
    calls: list[CallFacts] = field(default_factory=list)

    def running_at(self, at: float) -> bool:
        return any(c.began <= at and (c.ended is None or at < c.ended) for c in self.calls)

    def goes_on_after(self, at: float) -> bool:
        return any(c.began > at for c in self.calls)

    def waits_at(self, at: float) -> bool:
        """Whether its last answer called tools whose results come back later."""
        before = [c for c in self.calls if c.ended is not None and c.ended <= at]
        return bool(before) and max(before, key=_thread_age).calls_tools and self.goes_on_after(at)


def side_call_kinds(calls: Iterable[CallFacts], words: Mapping[str, ThreadTexts]) -> dict[str, CallKind]:
    """Return the kinds of a trajectory's calls beside its main path. `words`: by the id of a thread's first call."""
    threads = _threads(calls)
    main: list[_Thread] = []
    found: dict[str, CallKind] = {}
    for at, thread in enumerate(threads):
        kind = _beside(thread, main, words) if main else _before(thread, threads[at + 1 :], words)
        if kind is CallKind.MAIN:
            main.append(thread)
        else:
            found |= dict.fromkeys((c.id for c in thread.calls), kind)
    return found


def _threads(calls: Iterable[CallFacts]) -> list[_Thread]:
    ordered = sorted(calls, key=_thread_age)
    known = {c.id: c for c in ordered}
    threads: dict[str, _Thread] = {}
    for call in ordered:
        first, seen = call, {call.id}
        while first.parent in known and first.parent not in seen:
            seen.add(first.parent)
            first = known[first.parent]
        threads.setdefault(first.id, _Thread(first)).calls.append(call)
    return sorted(threads.values(), key=lambda t: _thread_age(t.first))


def _thread_age(call: CallFacts) -> tuple[float, str]:
    return call.began, call.id


def _before(thread: _Thread, later: Sequence[_Thread], words: Mapping[str, ThreadTexts]) -> CallKind:
    """Return the kind of a thread without an earlier main thread."""
    if thread.first.tools is not None or len(thread.calls) > 1:
        return CallKind.MAIN
    about = words.get(thread.first.id, ThreadTexts())
    for other in later:
        if other.first.tools is not None:
            begins = words.get(other.first.id, ThreadTexts())
            used = about.answer.strip() and about.answer.strip() in begins.prompt
            return CallKind.AUX if _is_about(about, begins) and not used else CallKind.MAIN
    return CallKind.MAIN


def _beside(thread: _Thread, main: Sequence[_Thread], words: Mapping[str, ThreadTexts]) -> CallKind:
    """Return the kind of a thread that begins after other threads."""
    at, tools = thread.first.began, thread.first.tools
    running = [m for m in main if m.running_at(at)]
    waiting = [m for m in main if m.waits_at(at)]
    if not running and not waiting:
        return CallKind.MAIN
    if any(m.first.tools in (None, tools) for m in (*running, *waiting)):
        return CallKind.MAIN
    if tools is not None:
        return CallKind.SUB if any(m.goes_on_after(at) for m in (*running, *waiting)) else CallKind.MAIN
    own = words.get(thread.first.id, ThreadTexts())
    about = any(_is_about(own, words.get(m.first.id, ThreadTexts())) for m in running)
    return CallKind.AUX if waiting or about or any(m.goes_on_after(at) for m in running) else CallKind.MAIN


def _is_about(errand: ThreadTexts, main: ThreadTexts) -> bool:
    return bool(main.user) and main.user in errand.prompt
