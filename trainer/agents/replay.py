"""Hone's own agent that repeats a recorded trajectory's request and answers tool calls from its record.

Owns: the loop of one attempt, and matching a tool call with the record. Refuses: inventing results. A tool call that
the record has no result for ends the attempt with `NotRecorded`. The agent host runs it in the user's Python.

A task's input is `{"messages", "tools", "sampling", "results"}` (`trainer.tasks.traffic` makes it). If the record holds
several results of the same call, they are returned in order; the last one is repeated.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from trainer.agents.answer import request_answer

MOST_TURNS = 100  # otherwise a model that repeats recorded calls would never end
NOT_RECORDED = "trainer.agents.replay.NotRecorded"  # the beginning of the attempt's error

Message = Mapping[str, Any]


class NotRecorded(Exception):
    """The record has no result for a tool call of the model."""


def canonical_arguments(arguments: object) -> str:
    """The arguments of a tool call in the form that is compared: JSON without white space, keys sorted."""
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return str(arguments)
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


class ToolRecord:
    """The tool results of one recorded trajectory, by name and arguments."""

    def __init__(self, results: list[dict[str, Any]]) -> None:
        self._results: dict[tuple[str, str], list[Any]] = {}
        for one in results:
            self._results.setdefault((one["name"], one["arguments"]), []).append(one["content"])
        self._used: Counter[tuple[str, str]] = Counter()

    def answer(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The tool message for a tool call. Raises `NotRecorded`."""
        function = call.get("function") or {}
        key = (str(function.get("name")), canonical_arguments(function.get("arguments")))
        if key not in self._results:
            raise NotRecorded(f"the record has no answer to {key[0]}({key[1]:.200})")
        found = self._results[key]
        content = found[min(self._used[key], len(found) - 1)]
        self._used[key] += 1
        return {"role": "tool", "tool_call_id": call.get("id"), "content": content}


def run(task: Any) -> Any:
    """Make one attempt; return the model's last answer."""
    given = task.input
    record = ToolRecord(given["results"])
    messages: list[Message] = list(given["messages"])
    for _ in range(MOST_TURNS):
        message = _ask(task, messages, given)
        calls = message.get("tool_calls") or []
        if not calls:
            return message.get("content")
        messages += [message, *(record.answer(call) for call in calls)]
    raise NotRecorded(f"the model took more than {MOST_TURNS} turns, unlike the recorded trajectory")


def _ask(task: Any, messages: list[Message], given: Mapping[str, Any]) -> dict[str, Any]:
    tools = {"tools": given["tools"]} if given["tools"] else {}
    return request_answer(task, {**given["sampling"], "messages": messages, **tools})
