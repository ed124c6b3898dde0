"""The typed events of a streamed response, from the deltas of a chat completion.

Owns: which item is open, its events, and their numbers. Pure: no bytes, no engine. Refuses: the form of complete items
(`items.py`), the response object around them.

The first delta of a kind opens an item, and the first of another kind closes it. In OpenAI's terms: output_item.added,
content_part.added, the deltas, output_text.done, content_part.done, output_item.done. A call with an item of its own
kind (`typed`) is sent when it is complete: only then is its form known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from proxy.dialects.base import CallSequence, require_call_start, require_continuation
from proxy.dialects.responses.items import call_item, item_id, message_item, reasoning_item
from proxy.dialects.responses.tools import ToolOrigin

Body = dict[str, Any]
Event = dict[str, Any]
Kind = Literal["content", "reasoning", "call", "typed"]
_Late = tuple[Literal["content", "reasoning"], str, Sequence[Body]]

_PREFIX: Final = {"content": "msg", "reasoning": "rs", "call": "fc", "typed": "fc"}


class _OpenItem:
    """The item that is being sent."""

    __slots__ = ("call", "id", "index", "kind", "logprobs", "texts")

    def __init__(self, kind: Kind, id_: str, call: Body | None = None, index: int | None = None) -> None:
        self.kind: Kind = kind
        self.id = id_
        self.call = call  # of a tool call: its id and name
        self.index = index  # and the engine's index of it
        self.texts: list[str] = []
        self.logprobs: list[Body] = []

    def text(self) -> str:
        return "".join(self.texts)


class ResponseEvents:
    """The events of one response. Each method returns the events to send next, with their numbers."""

    def __init__(self, response_id: str, origins: Mapping[str, ToolOrigin] | None = None) -> None:
        self.items: list[Body] = []  # complete ones
        self._origins = origins or {}
        self._response_id = response_id
        self._number = 0
        self._open: _OpenItem | None = None
        self._calls: set[int] = set()  # indexes of calls that have begun
        self._sequence = CallSequence()
        self._buffered: list[_Late] = []  # received while a call was open

    def about(self, kind: str, response: Body) -> list[Event]:
        """Return an event about the whole response: `response.<kind>`."""
        return self._numbered([{"type": f"response.{kind}", "response": response}])

    def delta(self, delta: Body, logprobs: Sequence[Body] = ()) -> list[Event]:
        """Return the events of a chat delta: its reasoning, then its text with the text's logprobs, then its tool
        calls.
        """
        events: list[Event] = []
        reasoning = delta.get("reasoning") or delta.get("reasoning_content")
        if reasoning:
            events += self._text("reasoning", reasoning, ())
        if delta.get("content"):
            events += self._text("content", delta["content"], logprobs)
        for part in delta.get("tool_calls") or ():
            for ready in self._sequence.add(part):
                events += self._call(ready, ready["index"])
        return self._numbered(events)

    def close(self) -> list[Event]:
        """Return the end of the open item, if there is one."""
        waiting = [event for part in self._sequence.rest() for event in self._call(part, part["index"])]
        return self._numbered([*waiting, *self._close()])

    def _numbered(self, events: list[Event]) -> list[Event]:
        for event in events:
            event["sequence_number"] = self._number
            self._number += 1
        return events

    # --- items

    def _text(self, kind: Literal["content", "reasoning"], delta: str, logprobs: Sequence[Body]) -> Iterator[Event]:
        if self._open is not None and self._open.kind in ("call", "typed"):
            self._buffered.append((kind, delta, logprobs))  # arguments may still follow, and items must not overlap
            return
        if self._open is None or self._open.kind != kind:
            yield from self._begin(kind)
        open_ = self._open
        assert open_ is not None
        open_.texts.append(delta)
        open_.logprobs += logprobs
        if kind == "content":
            entries = [_in_delta(entry) for entry in logprobs]
            yield self._within("output_text.delta", content_index=0, delta=delta, logprobs=entries)
        else:
            yield self._within("reasoning_text.delta", content_index=0, delta=delta)

    def _call(self, part: Body, index: int) -> Iterator[Event]:
        function = part.get("function") or {}
        if index in self._calls:
            require_continuation(part, is_open=self._open is not None and self._open.index == index)
        else:
            call_id, name = require_call_start(part)
            call = {"id": call_id, "function": {"name": name}}
            yield from self._begin(self._call_kind(call), call, index)
            self._calls.add(index)
        open_ = self._open
        assert open_ is not None
        if function.get("arguments"):
            open_.texts.append(function["arguments"])
            if open_.kind == "call":
                yield self._within("function_call_arguments.delta", delta=function["arguments"])

    def _call_kind(self, call: Body) -> Kind:
        origin = self._origins.get(call["function"]["name"])
        return "call" if origin is None or origin.type == "function" else "typed"

    def _begin(self, kind: Kind, call: Body | None = None, index: int | None = None) -> Iterator[Event]:
        yield from self._close()
        self._open = open_ = _OpenItem(kind, item_id(_PREFIX[kind], self._response_id, len(self.items)), call, index)
        if kind == "typed":
            return
        yield self._item("added", self._whole(open_, "in_progress"))
        if kind == "content":
            part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
            yield self._within("content_part.added", content_index=0, part=part)
        elif kind == "reasoning":
            yield self._within("content_part.added", content_index=0, part={"text": "", "type": "reasoning_text"})

    def _close(self) -> Iterator[Event]:
        """The end of the open item, then the text that was buffered during a call, in items of its own."""
        yield from self._end()
        buffered, self._buffered = self._buffered, []
        for kind, delta, logprobs in buffered:
            yield from self._text(kind, delta, logprobs)
        yield from self._end()

    def _end(self) -> Iterator[Event]:
        open_ = self._open
        if open_ is None:
            return
        whole, text = self._whole(open_, "completed"), open_.text()
        if open_.kind == "content":
            yield self._within("output_text.done", content_index=0, text=text, logprobs=[])
            yield self._within("content_part.done", content_index=0, part=whole["content"][0])
        elif open_.kind == "reasoning":
            yield self._within("reasoning_text.done", content_index=0, text=text)
            yield self._within("content_part.done", content_index=0, part=whole["content"][0])
        elif open_.kind == "call":
            yield self._within("function_call_arguments.done", arguments=text, name=whole["name"])
        else:
            yield from self._typed(whole, text)
        yield self._item("done", whole)
        self.items.append(whole)
        self._open = None

    def _typed(self, whole: Body, arguments: str) -> Iterator[Event]:
        """The events of a call that is sent when it is complete, up to its end."""
        assert self._open is not None
        self._open.id = whole["id"]
        if whole["type"] == "custom_tool_call":
            yield self._item("added", whole | {"input": "", "status": "in_progress"})
            yield self._within("custom_tool_call_input.delta", delta=whole["input"])
            yield self._within("custom_tool_call_input.done", input=whole["input"])
        elif whole["type"] == "function_call":
            yield self._item("added", whole | {"arguments": "", "status": "in_progress"})
            yield self._within("function_call_arguments.delta", delta=arguments)
            yield self._within("function_call_arguments.done", arguments=arguments, name=whole["name"])
        else:
            yield self._item("added", whole | {"status": "in_progress"})

    def _whole(self, open_: _OpenItem, status: str) -> Body:
        text, at = open_.text(), len(self.items)
        if open_.kind == "content":
            item = message_item(text, self._response_id, at, open_.logprobs or None)
        elif open_.kind == "reasoning":
            item = reasoning_item(text, self._response_id, at)
            if status != "completed":
                item["content"] = None
        else:
            assert open_.call is not None
            function = open_.call["function"] | {"arguments": text}
            item = call_item(open_.call | {"function": function}, self._response_id, at, self._origins)
        return item | {"status": status}

    def _within(self, kind: str, **fields: Any) -> Event:
        assert self._open is not None
        return {
            "type": f"response.{kind}",
            "item_id": self._open.id,
            "output_index": len(self.items),
            **fields,
        }

    def _item(self, kind: str, item: Body) -> Event:
        return {"type": f"response.output_item.{kind}", "output_index": len(self.items), "item": item}


def _in_delta(entry: Body) -> Body:
    """A token's logprobs in a delta's form: without bytes."""
    top = [{"token": other["token"], "logprob": other["logprob"]} for other in entry.get("top_logprobs") or ()]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": top}
