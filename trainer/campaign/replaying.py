"""Recorded runs as scenarios that Hone attempts by itself, with tools answered from the record.

Owns: what of a run such a scenario holds. Refuses: attempting it (`trainer.agents.replay`).

The agent is not there: its system message, its tools and the rest of what it first sent are taken from the record. What
the run's user said later is not replayed: an attempt is the answer to the opening.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from recorder.content.redaction import Redaction
from recorder.content.turns import Message
from recorder.reading.views import CallView, TrajectoryView
from recorder.states import TurnKind
from trainer.agents.replay import canonical
from trainer.tasks.scenarios import Scenario
from trainer.tasks.traffic import PassedOver, Task, first_call, texts_of

# What of a request decides how is sampled. The rest is the agent's business with its server.
_SAMPLING: Final = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "stop")


def opening(view: TrajectoryView) -> str | PassedOver:
    """What tells a run's opening from another, or why it cannot be replayed: here it may have any messages of text."""
    call = first_call(view)
    if call is None:
        return PassedOver.NO_OPENING
    found = [texts_of(message) for message in call.messages if message.get("role") == "user"]
    known = [text for text in found if text is not None]
    if len(known) < len(found):
        return PassedOver.NOT_TEXT
    return "\n".join(known).strip() or PassedOver.EMPTY


def scenarios(tasks: Iterable[Task], redaction: Redaction) -> list[Scenario]:
    """Tasks as scenarios with all that an attempt needs, redacted; each bears the id of its run."""
    return [Scenario(task.run.id, _input(task.run, redaction)) for task in tasks]


def _input(view: TrajectoryView, redaction: Redaction) -> dict[str, Any]:
    call = first_call(view)
    assert call is not None, "a run without an opening is passed over"
    return {
        "messages": list(redaction.messages(call.messages)),
        "tools": redaction.value(list(call.tools or ())),
        "sampling": {name: call.rest[name] for name in _SAMPLING if call.rest.get(name) is not None},
        "results": redaction.value(results(view.calls)),
    }


def results(calls: Sequence[CallView]) -> list[dict[str, Any]]:
    """What a run's tools answered, in order, by name and canonical arguments: as its later calls brought it back."""
    found: dict[str, dict[str, Any]] = {}
    for call in calls:
        if call.turn_kind is TurnKind.MAIN:
            for id_, one in _results_in(call.messages):
                found.setdefault(id_, one)
    return list(found.values())


def _results_in(messages: Sequence[Message]) -> Iterable[tuple[str, dict[str, Any]]]:
    asked: dict[str, Mapping[str, Any]] = {}
    for at, message in enumerate(messages):
        asked |= {call["id"]: call["function"] for call in message.get("tool_calls") or () if "function" in call}
        function = asked.pop(str(message.get("tool_call_id")), None) if message.get("role") == "tool" else None
        if function is not None:
            key = {"name": function["name"], "arguments": canonical(function["arguments"])}
            yield f"{at} {message['tool_call_id']}", {**key, "content": message.get("content")}
