"""Where in a session a call belongs: a client named the conversation, and the run is to be found in it.

Owns: that decision, over what the store holds of the session. Refuses: other sessions' runs, other keys' under the same
name, and making new ones.

A session holds runs, one after the other or side by side. A call belongs to the run that it goes on from: by ids that
we issued, by its whole history, else by an exchange of the run that comes back behind an edited or shortened one. A
conversation that goes on from none begins a new run of the session, unless it can be shown to be part of one:

- a sub-agent's, where its client says so, or where the run waits for a tool that was given this very text;
- what remains of a compacted history, where it quotes an answer of the run and has its system messages and tools;
- an errand beside a call that runs now and is about the same words, where one of the two has tools;
- what follows an errand with which the session began: a title, asked for first (opencode does).

For the judge sees the path to a run's last main leaf: a second task in the same run would hide the first one. What a
run's errands are is settled when it ends (`recorder.groups.turn_kinds`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from recorder.base.lru import Lru
from recorder.content.said import message_text, text_parts
from recorder.content.turns import ANYBODY, Message, Parent, Request, TrajectoryRef, Turn, Whose
from recorder.lineage import likeness, lookup, match
from recorder.lineage import statements as sql
from recorder.lineage.likeness import Said
from recorder.lineage.match import Told
from recorder.states import Confidence
from recorder.store.lanes import Executor

MOST_TITLE_CHARS = 200  # of an errand's answer: more is work that somebody may go on with
LOOKED_AT = 4  # open runs of a session, the newest, that a conversation without a known past may be part of


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that names a session. `tools`: the blob id of its tools."""

    project_id: str
    session: str
    group: str  # the group part of its address, or ""
    messages: Sequence[Message]
    ends: Sequence[bytes]  # the nodes of its assistant turns, the last first
    told: Sequence[Told]  # the turn that it goes on from
    tools: bytes | None
    sub_agent: bool
    whose: Whose = ANYBODY


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a call of a session belongs. No trajectory: to a new run of it."""

    confidence: Confidence = Confidence.STATED
    trajectory_id: str | None = None
    parent: Parent | None = None


NEW_RUN = Seat()


def seat(ex: Executor, asked: Asked, claimed: Lru[Parent, bool]) -> Seat | None:
    """Where a call belongs. None: so many runs share the name that it tells nothing."""
    runs = lookup.session_runs(ex, asked.project_id, asked.session, asked.group, asked.ends, asked.told, asked.whose)
    if len(runs.ids) > sql.MOST_RUNS:
        return None
    if not runs.ids:
        return NEW_RUN
    matches = [replace(m, continued=m.continued or Parent(m.call_id, m.choice) in claimed) for m in runs.matches]
    decision = match.decide(matches)
    issued = lookup.issued(ex, asked.project_id, match.issued_in(asked.messages)).values()
    homes = {i.trajectory_id: i.choice for i in issued if i.trajectory_id in runs.ids}
    if len(homes) == 1:
        [(home, choice)] = homes.items()
        there = match.decide(m for m in matches if m.trajectory_id == home).match
        return Seat(trajectory_id=home, parent=Parent(there.call_id, there.choice) if there else choice)
    if decision.match is not None:
        return _at(decision.match.trajectory_id, Parent(decision.match.call_id, decision.match.choice), decision)
    return _without_a_past(ex, asked, runs.open_ids[:LOOKED_AT])


def _at(trajectory_id: str, parent: Parent, decision: match.Decision) -> Seat:
    sure = decision.confidence is Confidence.EXACT
    return Seat(Confidence.STATED if sure else Confidence.AMBIGUOUS, trajectory_id, parent)


def _without_a_past(ex: Executor, asked: Asked, open_ids: Sequence[str]) -> Seat:
    said = lookup.said_in(ex, open_ids)
    back = likeness.come_back(asked.messages, said)
    if back:
        one = len({s.trajectory_id for s in back}) == 1
        confidence = Confidence.STATED if one else Confidence.AMBIGUOUS
        return Seat(confidence, back[0].trajectory_id, back[0].choice)
    if asked.sub_agent and open_ids:
        return Seat(trajectory_id=open_ids[0])
    if asked.ends:
        return NEW_RUN
    return _given_to_a_tool(asked, said) or _compacted(ex, asked, said) or _after_an_errand(ex, asked, said) or NEW_RUN


def _given_to_a_tool(asked: Asked, said: Iterable[Said]) -> Seat | None:
    """The run that waits for a tool which was given what this conversation begins with."""
    task = likeness.first_user_text(asked.messages)
    if len(task) < likeness.MIN_QUOTED_CHARS:
        return None
    for one in said:
        if one.tools != asked.tools and any(task in text or text in task for text in _tasks(one)):
            return Seat(trajectory_id=one.trajectory_id)
    return None


def _tasks(one: Said) -> list[str]:
    return [text for text in likeness.asked_of_tools(one.answer) if len(text) >= likeness.MIN_QUOTED_CHARS]


def _compacted(ex: Executor, asked: Asked, said: Iterable[Said]) -> Seat | None:
    """The run whose answer this conversation quotes, with the same system messages and tools: its summary."""
    for one in said:
        if one.tools != asked.tools or not likeness.quoted(message_text(one.answer), asked.messages):
            continue
        if likeness.head(lookup.beginning(ex, one.choice.call_id)) == likeness.head(asked.messages):
            return Seat(trajectory_id=one.trajectory_id, parent=one.choice)
    return None


def _after_an_errand(ex: Executor, asked: Asked, said: Sequence[Said]) -> Seat | None:
    """The run that holds one short answer without tools, to another head, about the words that this one begins with.

    What is used further on was no errand: a plan comes back in the work.
    """
    words = likeness.first_user_text(asked.messages)
    if asked.tools is None or not words or len(said) >= sql.MOST_ANSWERS:
        return None
    answers = Counter(one.trajectory_id for one in said)
    for one in said:
        title = message_text(one.answer).strip()
        if one.tools is not None or answers[one.trajectory_id] > 1 or not 0 < len(title) <= MOST_TITLE_CHARS:
            continue
        prompt = lookup.beginning(ex, one.choice.call_id)
        used = any(title in text for m in asked.messages for text in text_parts(m))
        if likeness.about(words, prompt) and not used and likeness.head(prompt) != likeness.head(asked.messages):
            return Seat(trajectory_id=one.trajectory_id)
    return None


def beside(running: Iterable[Turn], asked: Asked, request: Request) -> TrajectoryRef | None:
    """The run of a call that runs now and that this one is an errand of, or is the main thread to."""
    words = likeness.first_user_text(asked.messages)
    for turn in running:
        ref = turn.attribution.trajectory
        if turn.project_id != asked.project_id or ref.session != asked.session:
            continue
        if (ref.group_external_id or "") != asked.group or not asked.whose.owns(ref.made_by):
            continue
        other = likeness.first_user_text(turn.request.messages)
        same_words = bool(words and other) and (words in other or other in words)
        if not same_words:  # the errand says what it wants before the words that it is about
            has_tools = bool(request.tools)
            work, errand = (words, turn.request.messages) if has_tools else (other, asked.messages)
            same_words = likeness.about(work, errand)
        if asked.sub_agent or (same_words and bool(turn.request.tools) != bool(request.tools)):
            return ref
    return None
