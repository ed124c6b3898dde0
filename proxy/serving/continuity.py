"""Token continuity: a call that continues a recorded one is sent with exactly the recorded token ids of its history.

Owns: building such a prompt with the engine's own renderer, and what is recorded about it. Refuses: attribution
(`proxy.attribution.attributor`), and the conditions (`proxy.serving.prompt_splice`).

A chat template may rewrite earlier turns: it drops their thinking, changes the spaces in the JSON of their tool calls,
trims white space. The next prompt then does not begin with the tokens that the model read and sampled: a trajectory
becomes several training rows, and the engine's prefix cache misses. With continuity a prompt is

   recorded prompt + recorded sample, with its end-of-turn token + what the template writes after that

The engine renders the conversation; the part after the sampled turn is new (`prompt_splice.new_part_start`). In any
doubt the conversation is sent unchanged, and the call records the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from proxy.dialects import parsed_request
from proxy.dialects.base import DialectRules
from proxy.engine.client import Client
from proxy.errors import EngineError
from proxy.serving.prompt_splice import (
    META,
    TURN_BOUND_PARSERS,
    Body,
    Fallback,
    Reason,
    max_new_tokens,
    new_ids,
    render_body,
    require_same,
    seen_by_template,
    thinking_parts,
)
from proxy.versions.routing import Route
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.capture.recorder import Recorder
from recorder.messages.calls import Attribution, Message
from recorder.states import Confidence

log = logging.getLogger(__name__)

TIMEOUT_S = 2.0  # no call is delayed for longer: an engine that renders this slowly is overloaded
WARN_EVERY_S = 60.0
KEPT_HISTORY_BYTES = 64 * 1024 * 1024  # tokens of recent calls in memory: 4,000 trajectories of 4,000 tokens
MOST_BLANK, MOST_BLANKS = 8, 256  # ids that a template writes after an end of turn; how many such endings are cached


@dataclass(frozen=True, slots=True)
class ContinuedPrompt:
    """How a call's prompt was built. `ids`: the prompt's token ids, which the engine gets in place of messages."""

    seen: str | None = None  # hash of what the template saw apart from the messages
    ids: Sequence[int] | None = None
    reason: Reason | None = None  # why there are no ids; None for a first turn
    thought: bool = False  # the prompt holds thinking that the engine parsed

    def meta(self, prompt_ids: Sequence[int] | None) -> dict[str, Any]:
        """Return what is recorded about it, given the prompt ids that the engine reported (None: it reported none)."""
        reason = self.reason
        used = self.ids is not None and prompt_ids is not None and list(self.ids) == list(prompt_ids)
        if self.ids is not None and prompt_ids is not None and not used:
            reason = "engine_rendered"
        record: dict[str, Any] = {"used": used, "seen": self.seen}
        if reason is not None:
            record["fallback"] = reason
        if self.thought and used:
            record["thought"] = True
        return {META: record}


def without_ids(made: ContinuedPrompt | None) -> ContinuedPrompt | None:
    """Return the same for a call that is sent without ids, since its engine refused them."""
    return replace(made, ids=None, reason="engine_refused") if made is not None else None


class Continuity:
    """Builds prompts that continue recorded ones. One per app. It never fails a call."""

    def __init__(
        self, project_id: str, recorder: Recorder, client: Client, reasoning_parser: str | None = None
    ) -> None:
        self._turn_bound = reasoning_parser in TURN_BOUND_PARSERS
        self._project_id = project_id
        self._recorder = recorder
        self._client = client
        self._blank: dict[tuple[int, ...], bool] = {}  # whether some ids are white space
        self._failing = RateLimitedLog(log, WARN_EVERY_S)
        recorder.keep_token_histories(KEPT_HISTORY_BYTES)

    async def prompt(self, chat: Body, attribution: Attribution | None, route: Route) -> ContinuedPrompt:
        """Return the ids for a call with these chat fields, or the reason why it is sent unchanged."""
        made = ContinuedPrompt()
        try:
            made = replace(made, seen=seen_by_template(chat))
            async with asyncio.timeout(TIMEOUT_S):
                return await self._prompt(chat, attribution, route, made)
        except Fallback as e:
            return replace(made, reason=e.reason)
        except (TimeoutError, EngineError):
            return replace(made, reason="render_failed")
        except Exception as e:  # noqa: BLE001 - a boundary: no failure here may reach the agent
            self._failing(
                logging.ERROR, "token continuity failed, and the conversation is sent unchanged: %s", e, error=e
            )
            return replace(made, reason="error")

    async def _prompt(
        self, chat: Body, attribution: Attribution | None, route: Route, made: ContinuedPrompt
    ) -> ContinuedPrompt:
        messages: Sequence[Message] = chat["messages"]
        if not any(m.get("role") == "assistant" for m in messages):
            return made
        if attribution is None:
            raise Fallback("not_recorded")
        if attribution.parent is None:
            raise Fallback("no_parent")
        if attribution.confidence not in (Confidence.STATED, Confidence.EXACT):
            raise Fallback("ambiguous")
        history = await self._recorder.past(self._project_id, attribution.parent, messages)
        if history is None:
            raise Fallback("no_parent_tokens")
        past, place = history
        at = require_same(past, place, chat, made.seen or "", route.base_fingerprint)
        thought = bool(past.meta.get(META, {}).get("thought")) or thinking_parts(past.extras) is not None
        if (
            thought
            and not self._turn_bound
            and (chat.get("stream") or parsed_request.forced_features(dict(chat), DialectRules()))
        ):
            raise Fallback("parsed_reasoning")
        ids, renderer = past.ids(), _EngineRenderer(self._client, chat, route, self._blank)
        new = await new_ids(renderer, messages, at, ids[-1])
        if len(ids) + len(new) + max_new_tokens(chat) > renderer.most_ids:
            raise Fallback("too_long")
        return replace(made, ids=[*ids, *new], thought=thought)


class _EngineRenderer:
    """Renders with the engine of one route, for one request."""

    def __init__(self, client: Client, chat: Body, route: Route, blank: dict[tuple[int, ...], bool]) -> None:
        self._client = client
        self._chat = chat
        self._route = route
        self._blank = blank
        self.most_ids = 0  # the engine's limit for a prompt and its answer; known after a render

    async def render(self, messages: Sequence[Message], *, ask: bool) -> list[int]:
        answer = await self._ask("/tokenize", render_body(self._chat, messages, self._route.engine_model, ask=ask))
        ids, most = answer.get("tokens"), answer.get("max_model_len")
        if not isinstance(ids, list) or not isinstance(most, int):
            raise Fallback("render_failed")
        self.most_ids = most
        return ids

    async def is_blank(self, ids: Sequence[int]) -> bool:
        known = tuple(ids)
        if not known or len(known) > MOST_BLANK:
            return not known
        if known not in self._blank:
            text = (await self._ask("/detokenize", {"model": self._route.engine_model, "tokens": known})).get("prompt")
            if len(self._blank) >= MOST_BLANKS:
                self._blank.clear()
            self._blank[known] = isinstance(text, str) and not text.strip()
        return self._blank[known]

    async def _ask(self, path: str, body: Body) -> Body:
        route = self._route
        reply = await self._client.send(route.replica_url, path, orjson.dumps(body), key=route.engine_key)
        async with reply:
            if reply.status != 200:
                raise Fallback("render_failed")
            return dict(orjson.loads(await reply.body()))
