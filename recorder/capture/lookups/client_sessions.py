"""Find the trajectory of a call in a client session: the client named only the conversation.

Owns: that decision, over the session's calls in the store. Refuses: trajectories of other sessions, those of other keys
under the same session name, and creating trajectories.

A session holds trajectories, one after the other or in parallel. A call belongs to the trajectory that it continues: by
ids that Hone issued, by its whole history, or by an exchange of the trajectory that recurs behind an edited or
shortened history. A conversation that continues none begins a new trajectory of the session. The exceptions join one:

- a sub-agent, if the client says so, or if the trajectory waits for a tool whose arguments contain this exact text;
- a compacted history that quotes an answer of the trajectory and has its system messages and tools;
- an auxiliary call beside a running call about the same words, if one of the two has tools;
- the calls after an auxiliary call with which the session began: a title, requested first (opencode does this).

The judge sees the path to a trajectory's last main leaf, so a second task in the same trajectory would hide the first.
Which calls are auxiliary is decided when the trajectory ends (`recorder.messages.call_tree`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from recorder.base.lru import Lru
from recorder.capture.lookups import recorded_calls
from recorder.capture.lookups import statements as sql
from recorder.messages import lineage
from recorder.messages.calls import (
    ANYBODY,
    KeyAccess,
    Message,
    ParentCall,
    RecordedCall,
    RecordedRequest,
    TrajectoryRef,
)
from recorder.messages.lineage import ConversationAnswer, RecordedAnswer
from recorder.messages.plain_text import message_text, text_parts
from recorder.states import Confidence
from recorder.store.write_backends import Executor

MOST_TITLE_CHARS = 200  # of an auxiliary answer; a longer answer may be work that continues
LOOKED_AT = 4  # newest open trajectories of a session that a conversation of unknown lineage may join


@dataclass(frozen=True, slots=True)
class SessionCall:
    """A call that names a session. `tools`: the blob id of its tools."""

    project_id: str
    session: str
    group: str  # the group part of its address, or ""
    messages: Sequence[Message]
    ends: Sequence[bytes]  # the nodes of its assistant messages, the last first
    told: Sequence[ConversationAnswer]  # the answer that it continues
    tools: bytes | None
    sub_agent: bool
    access: KeyAccess = ANYBODY


@dataclass(frozen=True, slots=True)
class SessionPosition:
    """The trajectory of a call in a session; without one, the call begins a new trajectory of the session."""

    confidence: Confidence = Confidence.STATED
    trajectory_id: str | None = None
    parent: ParentCall | None = None


NEW_RUN = SessionPosition()


def find_position(ex: Executor, call: SessionCall, claimed: Lru[ParentCall, bool]) -> SessionPosition | None:
    """Return the position of a call in its session, or None if too many trajectories share the session's name."""
    runs = recorded_calls.find_session_trajectories(
        ex, call.project_id, call.session, call.group, call.ends, call.told, call.access
    )
    if len(runs.ids) > sql.MOST_RUNS:
        return None
    if not runs.ids:
        return NEW_RUN
    matches = [replace(m, continued=m.continued or ParentCall(m.call_id, m.choice) in claimed) for m in runs.matches]
    decision = lineage.decide_parent(matches)
    issued = recorded_calls.find_issued_ids(ex, call.project_id, lineage.issued_tool_call_ids(call.messages)).values()
    homes = {i.trajectory_id: i.choice for i in issued if i.trajectory_id in runs.ids}
    if len(homes) == 1:
        [(home, choice)] = homes.items()
        there = lineage.decide_parent(m for m in matches if m.trajectory_id == home).match
        return SessionPosition(trajectory_id=home, parent=ParentCall(there.call_id, there.choice) if there else choice)
    if decision.match is not None:
        return _at(decision.match.trajectory_id, ParentCall(decision.match.call_id, decision.match.choice), decision)
    return _without_a_past(ex, call, runs.open_ids[:LOOKED_AT])


def _at(trajectory_id: str, parent: ParentCall, decision: lineage.Decision) -> SessionPosition:
    is_exact = decision.confidence is Confidence.EXACT
    return SessionPosition(Confidence.STATED if is_exact else Confidence.AMBIGUOUS, trajectory_id, parent)


def _without_a_past(ex: Executor, call: SessionCall, open_ids: Sequence[str]) -> SessionPosition:
    said = recorded_calls.find_answers_in(ex, open_ids)
    returned = lineage.matching_exchanges(call.messages, said)
    if returned:
        is_single = len({s.trajectory_id for s in returned}) == 1
        confidence = Confidence.STATED if is_single else Confidence.AMBIGUOUS
        return SessionPosition(confidence, returned[0].trajectory_id, returned[0].choice)
    if call.sub_agent and open_ids:
        return SessionPosition(trajectory_id=open_ids[0])
    if call.ends:
        return NEW_RUN
    return (
        _given_to_a_tool(call, said) or _compacted(ex, call, said) or _after_auxiliary_call(ex, call, said) or NEW_RUN
    )


def _given_to_a_tool(call: SessionCall, said: Iterable[RecordedAnswer]) -> SessionPosition | None:
    """Return the trajectory that waits for a tool whose arguments contain this conversation's first words, or None."""
    task = lineage.first_user_text(call.messages)
    if len(task) < lineage.MIN_QUOTED_CHARS:
        return None
    for one in said:
        if one.tools != call.tools and any(task in text or text in task for text in _tasks(one)):
            return SessionPosition(trajectory_id=one.trajectory_id)
    return None


def _tasks(one: RecordedAnswer) -> list[str]:
    return [text for text in lineage.asked_of_tools(one.answer) if len(text) >= lineage.MIN_QUOTED_CHARS]


def _compacted(ex: Executor, call: SessionCall, said: Iterable[RecordedAnswer]) -> SessionPosition | None:
    """Return the trajectory that this conversation summarizes, or None.

    The conversation quotes one of its answers, and has the same system messages and tools.
    """
    for one in said:
        if one.tools != call.tools or not lineage.is_quoted(message_text(one.answer), call.messages):
            continue
        if lineage.system_head(recorded_calls.first_messages(ex, one.choice.call_id)) == lineage.system_head(
            call.messages
        ):
            return SessionPosition(trajectory_id=one.trajectory_id, parent=one.choice)
    return None


def _after_auxiliary_call(ex: Executor, call: SessionCall, said: Sequence[RecordedAnswer]) -> SessionPosition | None:
    """Return the trajectory that began with an auxiliary call for this conversation, or None.

    It has one short answer without tools, to another system message, about this conversation's first words. An answer
    that the conversation uses, such as a plan, was not auxiliary.
    """
    words = lineage.first_user_text(call.messages)
    if call.tools is None or not words or len(said) >= sql.MOST_ANSWERS:
        return None
    answers = Counter(one.trajectory_id for one in said)
    for one in said:
        title = message_text(one.answer).strip()
        if one.tools is not None or answers[one.trajectory_id] > 1 or not 0 < len(title) <= MOST_TITLE_CHARS:
            continue
        prompt = recorded_calls.first_messages(ex, one.choice.call_id)
        used = any(title in text for m in call.messages for text in text_parts(m))
        if (
            lineage.is_about(words, prompt)
            and not used
            and lineage.system_head(prompt) != lineage.system_head(call.messages)
        ):
            return SessionPosition(trajectory_id=one.trajectory_id)
    return None


def find_concurrent_parent(
    running: Iterable[RecordedCall], call: SessionCall, request: RecordedRequest
) -> TrajectoryRef | None:
    """Return the trajectory of a running call, if this call is auxiliary to it or is its main thread, or None."""
    words = lineage.first_user_text(call.messages)
    for turn in running:
        ref = turn.attribution.trajectory
        if turn.project_id != call.project_id or ref.session != call.session:
            continue
        if (ref.group_external_id or "") != call.group or not call.access.owns(ref.made_by):
            continue
        other = lineage.first_user_text(turn.request.messages)
        same_words = bool(words and other) and (words in other or other in words)
        if not same_words:  # an auxiliary call has its instruction before the words that it is about
            has_tools = bool(request.tools)
            work, auxiliary = (words, turn.request.messages) if has_tools else (other, call.messages)
            same_words = lineage.is_about(work, auxiliary)
        if call.sub_agent or (same_words and bool(turn.request.tools) != bool(request.tools)):
            return ref
    return None
