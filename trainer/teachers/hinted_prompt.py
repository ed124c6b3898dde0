"""The prompt of an answer with a hint in it, as the engine's chat template writes it. Pure.

Owns: where the hint stands, and why an answer has no such prompt. Refuses: the hint's text
(`trainer.teachers.hint_text`), and the template (`trainer.demonstrations.chat_template`).

The hint is one user message directly before the answer. Where the template takes none there, it is the end of the last
message of a user or a tool. The sampled ids follow as they were recorded. So the prompt must end as the recorded one:
another ending, as of a request that turned thinking off, would be compared with it, and not the hint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol

import numpy as np

from recorder.messages.calls import Message
from recorder.messages.plain_text import find_texts
from recorder.views.trajectories.shapes import CallView
from trainer.batch.packing import Ids
from trainer.batch.row_builder import as_ids
from trainer.demonstrations.chat_template import CannotSplit, OpenPrompt

_OPTIONS: Final = "chat_template_kwargs"  # a request's own arguments of the template, as vLLM names them
_EXTENDED: Final = ("user", "tool")


class HintExclusion(StrEnum):
    """Why an answer with a hint, or one for a stronger model, is not trained on."""

    HINT_REFUSED = "hint_refused"  # no message of the prompt may hold the hint
    HINT_TOO_LONG = "hint_too_long"  # with the hint, the answer does not fit
    PROMPT_DIFFERS = "prompt_differs"  # the template does not begin the answer as the recorded prompt does
    TEACHER_REFUSED = "teacher_refused"  # the stronger model gave no logprobs for it


class HintRefused(Exception):
    """The answer has no prompt with the hint. `code`: why."""

    def __init__(self, code: HintExclusion) -> None:
        super().__init__(str(code))
        self.code = code


class PromptWriter(Protocol):
    """What writes prompts (`trainer.demonstrations.chat_template.ChatTemplate`)."""

    @property
    def marks(self) -> Sequence[str]:
        """The texts that are single tokens of their own."""

    def write_prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any] | None = None,
    ) -> OpenPrompt:
        """Return the prompt that an engine answers. Raises `CannotSplit`."""


def hinted_prompt(call: CallView, hint: str, template: PromptWriter) -> Ids:
    """Return the ids of a call's prompt with the hint. Raises `HintRefused`."""
    assert call.prompt_token_ids is not None
    given = call.rest.get(_OPTIONS)
    options = given if isinstance(given, Mapping) else None
    opening = _opening(call, template, options)
    if not _ends_with(as_ids(call.prompt_token_ids), opening):
        raise HintRefused(HintExclusion.PROMPT_DIFFERS)
    for messages in _placed(call.messages, hint):
        try:
            found = template.write_prompt(messages, call.tools, options)
        except CannotSplit:
            continue
        if hint in found.text and _ends_with(found.ids, opening):
            return found.ids
    raise HintRefused(HintExclusion.HINT_REFUSED)


def _opening(call: CallView, template: PromptWriter, options: Mapping[str, Any] | None) -> Ids:
    """The ids with which the template begins an answer to the recorded messages."""
    try:
        return template.write_prompt(call.messages, call.tools, options).opening
    except CannotSplit:
        raise HintRefused(HintExclusion.PROMPT_DIFFERS) from None


def _ends_with(ids: Ids, opening: Ids) -> bool:
    return len(opening) == 0 or np.array_equal(ids[-len(opening) :], opening)


def _placed(messages: Sequence[Message], hint: str) -> list[list[Message]]:
    """The messages with the hint, as a message of its own and at the end of the last one of a user or tool."""
    places = [[*messages, {"role": "user", "content": hint}]]
    last = max((at for at, one in enumerate(messages) if one.get("role") in _EXTENDED), default=None)
    if last is not None:
        text = "\n".join([*find_texts(messages[last].get("content")), "", hint])
        places.append([*messages[:last], {**messages[last], "content": text}, *messages[last + 1 :]])
    return places
