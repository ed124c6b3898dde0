"""A store full of hostile text: in everything that an agent said and was told, and in every column that others write.

Owns: where the text is put. Refuses: which text (`tests.proxy.dashboard.xss`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from sqlalchemy import JSON, Table, and_, select, update

from recorder.capture.recorder import Recorder
from recorder.queue import claims
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.registry.aliases import get_alias
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.store.schema import metadata
from tests.browser.agent import Agent, at, thinking
from tests.proxy.dashboard.xss import CORPUS
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.score_rows import new_score

GROUPS: Final = 6
ATTEMPTS: Final = 8
# Columns whose words come from outside, from models, agents, engines, judges or people. Not: ids, states, our codes.
COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "keys": ("name",),
    "proxies": ("url",),
    "replicas": ("detail", "base_model", "loaded"),
    "ledger": ("detail",),
    "campaigns": ("name", "reason"),
    "versions": ("reason", "verified"),
    "steps": ("reason",),
    "scenarios": ("external_id", "input", "reference"),
    "scores": ("judge_model", "judge_version", "reply"),
    "score_parts": ("explanation",),
    "attempts": ("answer", "error"),
    "trajectories": ("session", "tags", "address_group"),
    "calls": ("model", "endpoint", "error", "response_meta", "base_fingerprint"),
    "choices": ("finish_reason",),
    "feedback": ("name", "value", "comment", "tags"),
    "tool_calls": ("server", "name", "tool", "arguments", "result", "error", "annotations"),
}


async def plant(data: Path) -> list[str]:
    """Put the whole corpus into a store; the ids of the groups that were made for it."""
    store = await open_store(data, RecorderSettings(), migrate=True)
    recorder = Recorder(store, RecorderSettings())
    await recorder.start()
    try:
        texts = cycle(CORPUS)
        made = [await _group(store, recorder, number, texts, disputed=not number) for number in range(GROUPS)]
        await _columns(store)
        return made
    finally:
        await recorder.stop()
        await store.close()


async def _group(store: Store, recorder: Recorder, number: int, texts: Iterator[str], *, disputed: bool = False) -> str:
    """Attempts at one task in which every word is hostile, and a judge's words of the same kind."""
    alias, task = await get_alias(Project(store, PROJECT), "helpdesk"), next(texts)
    runs = []
    for attempt in range(ATTEMPTS):
        agent = Agent(recorder, alias, at(f"hostile-{number}", attempt, ATTEMPTS, channel=next(texts)), task)
        if attempt == 0:
            agent.messages = [{"role": "system", "content": next(texts)}, *agent.messages[1:]]
        await agent.use(next(texts), next(texts), said=next(texts), order_id=next(texts))
        await agent.use(next(texts), next(texts), failed=True, **{next(texts): next(texts)})
        if attempt % 4 == 0:
            agent.messages = [*agent.messages, {"role": "user", "content": [{"type": "text", "text": next(texts)}]}]
            await agent.sub_agent()
        await agent.answer(thinking(next(texts), next(texts)))
        runs.append(await agent.end())
    claim = await claims.claim_one_for_judging(store, str(await _group_of(store, runs[0])), "judge", 60)
    assert claim is not None
    parts = [
        NewPart(run, part, place / ATTEMPTS, 0.5, next(texts))
        for place, run in enumerate(runs)
        for part in (scores.REWARD, "ruler")
    ]
    told = new_score(
        recipe_hash="recipe", judge_model=next(texts), prompt_hash="prompt", reply=next(texts), parts=parts
    )
    split = replace(told, agreement=-0.5, disputed=next(texts)) if disputed else told
    await scores.record_score(store, claim, split)
    return claim.group_id


async def _group_of(store: Store, run: str) -> object:
    return (await Rows(store).get(metadata.tables["trajectories"], run))["group_id"]


async def _columns(store: Store) -> None:
    texts = cycle(CORPUS)
    for name, columns in COLUMNS.items():
        table = metadata.tables[name]
        keys = list(table.primary_key.columns)
        async with store.write() as conn:
            for row in (await conn.execute(select(table))).mappings().all():
                values = {column: _value(table, column, row[column], texts) for column in columns}
                kept = {column: value for column, value in values.items() if value is not None}
                if kept:
                    this = and_(*(key == row[key.name] for key in keys))
                    await conn.execute(update(table).where(this).values(**kept))


def _value(table: Table, column: str, there: Any, texts: Iterator[str]) -> Any:
    """Hostile text of the form that is there; None where nothing is, so that what may be absent stays so."""
    if not isinstance(table.c[column].type, JSON):
        return None if there is None else next(texts)
    return None if there is None else _within(there, texts)


def _within(value: Any, texts: Iterator[str]) -> Any:
    """The same form, with every name and every word in it hostile."""
    if isinstance(value, dict):
        return {next(texts): _within(inner, texts) for inner in (value or {"": ""}).values()}
    if isinstance(value, list):
        return [_within(inner, texts) for inner in value]
    return next(texts) if isinstance(value, str) else value
