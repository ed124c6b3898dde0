"""Which calls of a run are its agent's main path, which are sub-agents', and which are errands such as titles.

Owns: the rule, as a pure function over a run that has ended: only then is it known which thread went on. Refuses:
storage (`recorder.groups.settling`), and any say where a client told the kinds itself (`x-hone-turn`).

A thread is a call that goes on from none of the run's, with all that go on from it. The rule is conservative: two
threads with the same tools are both main (parallel samples, a compacted history, an agent without memory), and so are
stages that follow one another, whatever their tools. An errand is a thread with other tools that begins while a main
thread is busy: one of its calls runs, or it waits for tools and goes on later. It is a sub-agent's where it has tools
of its own, and auxiliary where it has none. A thread without tools that comes first is auxiliary where it is a single
call about the very words with which the main thread then begins, and the main thread does not use its answer (Claude
Code asks for a topic first; a planner's plan is used).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from recorder.states import TurnKind


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What the rule needs to know of a call. Times are unix seconds."""

    id: str
    parent: str | None  # a call that it goes on from
    tools: bytes | None  # what stands for its tools; None: it has none
    began: float
    ended: float | None
    calls_tools: bool  # its answer does


@dataclass(frozen=True, slots=True)
class Words:
    """The texts of a thread's first call, where they matter."""

    user: str = ""  # its first user message
    prompt: str = ""  # everything that it was asked
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
        """Whether its last answer called tools whose results have not come back, and will."""
        before = [c for c in self.calls if c.ended is not None and c.ended <= at]
        return bool(before) and max(before, key=_age).calls_tools and self.goes_on_after(at)


def kinds_of(calls: Iterable[CallFacts], words: Mapping[str, Words]) -> dict[str, TurnKind]:
    """The calls of a run that are not on its main path, and what they are. `words` by a thread's first call."""
    threads = _threads(calls)
    main: list[_Thread] = []
    found: dict[str, TurnKind] = {}
    for at, thread in enumerate(threads):
        kind = _beside(thread, main, words) if main else _before(thread, threads[at + 1 :], words)
        if kind is TurnKind.MAIN:
            main.append(thread)
        else:
            found |= dict.fromkeys((c.id for c in thread.calls), kind)
    return found


def _threads(calls: Iterable[CallFacts]) -> list[_Thread]:
    ordered = sorted(calls, key=_age)
    known = {c.id: c for c in ordered}
    threads: dict[str, _Thread] = {}
    for call in ordered:
        first, seen = call, {call.id}
        while first.parent in known and first.parent not in seen:
            seen.add(first.parent)
            first = known[first.parent]
        threads.setdefault(first.id, _Thread(first)).calls.append(call)
    return sorted(threads.values(), key=lambda t: _age(t.first))


def _age(call: CallFacts) -> tuple[float, str]:
    return call.began, call.id


def _before(thread: _Thread, later: Sequence[_Thread], words: Mapping[str, Words]) -> TurnKind:
    """The kind of a thread before which there is no main one."""
    if thread.first.tools is not None or len(thread.calls) > 1:
        return TurnKind.MAIN
    about = words.get(thread.first.id, Words())
    for other in later:
        if other.first.tools is not None:
            begins = words.get(other.first.id, Words())
            used = about.answer.strip() and about.answer.strip() in begins.prompt
            return TurnKind.AUX if _is_about(about, begins) and not used else TurnKind.MAIN
    return TurnKind.MAIN


def _beside(thread: _Thread, main: Sequence[_Thread], words: Mapping[str, Words]) -> TurnKind:
    """The kind of a thread that begins when others have begun."""
    at, tools = thread.first.began, thread.first.tools
    running = [m for m in main if m.running_at(at)]
    waiting = [m for m in main if m.waits_at(at)]
    if not running and not waiting:
        return TurnKind.MAIN
    if any(m.first.tools in (None, tools) for m in (*running, *waiting)):
        return TurnKind.MAIN
    if tools is not None:
        return TurnKind.SUB if any(m.goes_on_after(at) for m in (*running, *waiting)) else TurnKind.MAIN
    own = words.get(thread.first.id, Words())
    about = any(_is_about(own, words.get(m.first.id, Words())) for m in running)
    return TurnKind.AUX if waiting or about or any(m.goes_on_after(at) for m in running) else TurnKind.MAIN


def _is_about(errand: Words, main: Words) -> bool:
    return bool(main.user) and main.user in errand.prompt
