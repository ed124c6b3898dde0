"""The judge model (`JudgeModel`), and the judge `base`: an alias's base model, asked through a running proxy.

Owns: the response format, and mapping failures to `judge.errors`. For `base`: which alias's base, the address of a
proxy and the key for it, and the base's name as the judge's version. Refuses: sending, retries and rate limits
(`recorder.llm.client`), prompts, and the meaning of replies.

The proxy serves judges at a route of its own (`proxy.serving.judge_calls`), whose calls are not recorded as traffic.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import SecretStr

from judge.errors import JudgeDown, JudgeUsage
from judge.panel_settings import BASE
from judge.settings import JudgeSettings, base_model_name
from recorder.errors import ModelFailed
from recorder.llm import client
from recorder.llm.client import LlmClient, ModelEndpoint, ModelReply
from recorder.queue.leases import holder_name
from recorder.registry import keys, replicas
from recorder.registry.aliases import AliasView, get_aliases
from recorder.registry.keys import Scope
from recorder.store import sql
from recorder.store.database import Project

REPLY_FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "verdict",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {
                "trajectories": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": "string"},
                            "explanation": {"type": "string"},
                            "score": {"type": "number"},
                        },
                        "required": ["id", "explanation", "score"],
                        "additionalProperties": False,
                    },
                }
            },
            "required": ["trajectories"],
            "additionalProperties": False,
        },
    },
}

Messages = client.Messages


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """One answer of the judge. `text` is empty if it gave none."""

    text: str
    finish_reason: str | None
    version: str | None  # as the provider reports it: model and fingerprint
    spent: JudgeUsage
    refusal: str | None = None  # its text when it declined to answer


class JudgeModel:
    """The judge model of the settings, which must name one. One event loop; `close()` at the end."""

    def __init__(self, settings: JudgeSettings, reply_format: Mapping[str, Any] = REPLY_FORMAT) -> None:
        key = settings.api_key.get_secret_value() if settings.api_key else ""
        at = ModelEndpoint(settings.model, settings.api_base, key)
        self._model = LlmClient(at, settings, settings.temperature, reply_format)

    async def close(self) -> None:
        """Close connections, and tasks that LiteLLM left on this loop."""
        await self._model.close()

    async def ask(self, messages: Messages) -> JudgeAnswer:
        """Send one request, and retry it after a pause if the judge is unreachable, overloaded or broken.

        Raises:
            JudgeDown: `code` is `judge_timeout` (never retried at once), `judge_refused`, `judge_filtered`,
                `judge_busy` (it asked for a longer pause than one request may take) or `judge_down`.
        """
        try:
            return _answer(await self._model.ask(messages))
        except ModelFailed as e:
            raise JudgeDown(f"judge_{e.how}", f"the judge {e}", wait_s=e.wait_s) from None


def _answer(reply: ModelReply) -> JudgeAnswer:
    spent = JudgeUsage(reply.tokens_in, reply.tokens_cached, reply.tokens_out, reply.cost_usd, reply.latency_s)
    return JudgeAnswer(reply.text, reply.finish_reason, reply.version, spent, reply.refusal)


ROUTE: Final = "/hone/v1/judge"  # where LiteLLM adds /chat/completions
HEARD_S: Final = 30.0  # proxies report every ten seconds; one that is silent for this long counts as gone
BELIEVED_S: Final = 30.0  # how long an address is used before it is looked up again
_KEY_LIFE_S: Final = 86400.0
_FINGERPRINT_CHARS: Final = 12


@dataclass(frozen=True, slots=True)
class BaseEndpoint:
    """An alias's base and its address. `version`: its name in scores. `until`: expiry on the monotonic clock."""

    url: str
    key: str | None = field(repr=False)
    alias: str
    version: str
    until: float


class BaseEndpoints:
    """Finds the bases of a project's aliases. `close()` revokes the API key that was created."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._found: dict[str | None, BaseEndpoint] = {}
        self._key: tuple[str, str, float] | None = None  # its id, its secret, and when to replace it
        self._looking = asyncio.Lock()

    async def find(self, alias: str | None) -> BaseEndpoint:
        """The endpoint of an alias's base; None: the project's only alias.

        Raises:
            JudgeDown: there is no such alias, or no proxy runs.
        """
        async with self._looking:
            found = self._found.get(alias)
            if found is None or time.monotonic() >= found.until:
                found = self._found[alias] = await self._look(alias)
            return found

    def forget(self, alias: str | None) -> None:
        """Look the base up again before the next request."""
        self._found.pop(alias, None)

    async def close(self) -> None:
        """Revoke the key."""
        if self._key is not None:
            await keys.revoke_key(self._project, self._key[0])
            self._key = None

    async def _look(self, name: str | None) -> BaseEndpoint:
        alias = _chosen(await get_aliases(self._project), name)
        seen = await replicas.list_live_proxies(self._project, HEARD_S)
        heard = [one for one in seen if one.url]
        if not heard:
            raise JudgeDown(
                "judge_down",
                f"the judge is `{BASE}`, which a running proxy serves, and no proxy has reported to this store for "
                f"{HEARD_S:.0f} s: start `hone up` or `hone serve`, or set judge.model to a model by its LiteLLM name",
            )
        newest = max(heard, key=lambda one: one.seen_at)
        return BaseEndpoint(
            newest.url.rstrip("/") + ROUTE,
            await self._key_now(),
            alias.name,
            _version(alias),
            time.monotonic() + BELIEVED_S,
        )

    async def _key_now(self) -> str | None:
        """An API key, if the project uses keys. It permits only requests to a version by name."""
        if self._key is None and not await keys.has_keys(self._project):
            return None
        if self._key is None or time.monotonic() >= self._key[2]:
            await self.close()
            async with self._project.store.read() as conn:
                expires_at = await sql.current_time(conn) + _KEY_LIFE_S
            name = f"judge {holder_name()}"
            made, secret = await keys.create_key(self._project, name, [Scope.EVAL], expires_at=expires_at, by="judge")
            self._key = made.id, secret, time.monotonic() + _KEY_LIFE_S / 2
        return self._key[1]


class BaseJudge:
    """One alias's base as the judge. One event loop."""

    def __init__(
        self, bases: BaseEndpoints, alias: str | None, settings: JudgeSettings, reply_format: Mapping[str, Any]
    ) -> None:
        self._bases = bases
        self._alias = alias
        self._settings = settings
        self._reply_format = reply_format
        self._model: tuple[BaseEndpoint, JudgeModel] | None = None

    async def ask(self, messages: Messages) -> JudgeAnswer:
        """Send one request; it costs no money. Raises JudgeDown as any judge does, and as `BaseEndpoints.find`."""
        at = await self._bases.find(self._alias)
        try:
            answer = await self._at(at).ask(messages)
        except JudgeDown:
            self._bases.forget(self._alias)  # the proxy may have moved, or the key may be revoked
            raise
        return replace(answer, version=at.version, spent=replace(answer.spent, cost_usd=0.0))

    def _at(self, at: BaseEndpoint) -> JudgeModel:
        if self._model is None or (self._model[0].url, self._model[0].key) != (at.url, at.key):
            own = {
                "model": f"openai/{base_model_name(at.alias)}",
                "api_base": at.url,
                "api_key": SecretStr(at.key) if at.key else None,
            }
            self._model = at, JudgeModel(self._settings.model_copy(update=own), self._reply_format)
        return self._model[1]


def _chosen(there: list[AliasView], name: str | None) -> AliasView:
    found = [one for one in there if name is None or one.name == name]
    if len(found) == 1:
        return found[0]
    names = ", ".join(one.name for one in there) or "none yet"
    why = "has no alias" if name is None else f"has the alias {name!r}, which does not exist"
    raise JudgeDown(
        "judge_down",
        f"the judge is `{BASE}`, the base model of a group's alias, and this group {why}; there is: {names}",
    )


def _version(alias: AliasView) -> str:
    """The base's name in scores: version 0 of its alias, the model, and the fingerprint of its weights."""
    fingerprint = (alias.base_fingerprint or "").rpartition(":")[2][:_FINGERPRINT_CHARS]
    return " ".join(one for one in (base_model_name(alias.name), alias.base_model, fingerprint) if one)
