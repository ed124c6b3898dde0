"""Records of judging besides the scores: prompts, the replies of each of several requests, and cached verdicts.

Owns: these rows and their compact form. Refuses: scores (`recorder.queue.judging.scores`), composing prompts and
parsing replies (package `judge`), and the hash key of a verdict (`judge.rewards.rubrics`).

Several prompts about a group show the same trajectories in another order and under other ids. So the first prompt is
stored in full, and each other one as an order of its lines plus replaced words. A line that the first prompt does not
have is stored in full, so decoding always returns the exact text. Everything is compressed JSON.

Replies are stored for scores of several requests; a single reply is in the score's own column. A verdict on one
trajectory is cached by a hash of its request, so that the same request is not sent twice. It quotes its trajectory and
is deleted with it.
"""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Text, and_, bindparam, exists, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import judge_replies, prompts, scores, trajectories, verdicts
from recorder.store.sql import now

Words = Mapping[str, str]  # a word of the first text → its replacement in the other
Line = int | str  # the number of a line of the first text, or a new line


def encode_lines(text: str, first: str, words: Words) -> list[Line]:
    """Encode the lines of a text by the lines of the first text."""
    at = {line: number for number, line in enumerate(_put_in(first, words).split("\n"))}
    return [at.get(line, line) for line in text.split("\n")]


def decode_lines(lines: Sequence[Line], first: str, words: Words) -> str:
    """Return the text that `encode_lines` encoded."""
    own = _put_in(first, words).split("\n")
    return "\n".join(line if isinstance(line, str) else own[line] for line in lines)


def _put_in(text: str, words: Words) -> str:
    """Replace all words in one pass, so that none is replaced twice; longer words come first."""
    if not words:
        return text
    known = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.sub(known, lambda found: words[found[0]], text)


Messages = Sequence[Mapping[str, str]]  # to a judge


@dataclass(frozen=True, slots=True)
class JudgePrompt:
    """The prompt of one request to a judge. `trajectory_id`: its only trajectory; None: the whole group.

    `number`: the index among several requests about the group, from 0. `words`: this prompt's words that differ in the
    other prompts, by a name that is the same in all; only `pack_prompts` uses them.
    """

    trajectory_id: str | None
    messages: Messages
    number: int = 0
    words: Mapping[str, str] = field(default_factory=dict)


async def pack_prompts(asked: Sequence[JudgePrompt]) -> bytes | None:
    """Return prompts in stored form, or None without prompts."""
    return await asyncio.to_thread(_pack, asked) if asked else None


async def write_prompts(conn: AsyncConnection, score_id: str, prompt: bytes) -> None:
    """Write the prompts of a score, inside the caller's transaction."""
    await conn.execute(insert(prompts).values(score_id=score_id, packed=prompt))


async def load_prompts(store: Store, score_id: str, number: int = 0) -> list[JudgePrompt]:
    """Return the prompts of a score, the group's first; empty if there were none or they were deleted.

    Of several requests about the group, the prompt with that `number` is returned. The prompt of a score from a stored
    reply is stored with the score that paid for the reply; with the same seed it differs only in the nonce.
    """
    this, paid = scores.alias("this"), scores.c
    own = select(prompts.c.packed).where(prompts.c.score_id == score_id)
    its = [paid[name] == this.c[name] for name in ("project_id", "prompt_hash", "recipe_hash", "order_seed")]
    same = select(prompts.c.packed).select_from(this).join(scores, and_(*its))
    same = same.join(prompts, prompts.c.score_id == paid.id).where(this.c.id == score_id, paid.id != score_id)
    async with store.read() as conn:
        found = (await conn.execute(own)).scalar_one_or_none()
        paid_for = (await conn.execute(same.order_by(paid.created_at, paid.id).limit(1))).scalar_one_or_none()
    return await asyncio.to_thread(_asked, found, paid_for, number)


async def scores_with_prompts(store: Store, score_ids: Collection[str]) -> set[str]:
    """Return those of some scores whose own prompts are stored."""
    async with store.read() as conn:
        query = select(prompts.c.score_id).where(prompts.c.score_id.in_(score_ids))
        return set((await conn.execute(query)).scalars())


def _asked(packed: bytes | None, paid_for: bytes | None, number: int) -> list[JudgePrompt]:
    """Return the prompts of a score, with the group's prompt of the score that paid for the reply."""
    found = _unpack(packed, number) if packed is not None else []
    if paid_for is None or any(one.trajectory_id is None for one in found):
        return found
    return [one for one in _unpack(paid_for, number) if one.trajectory_id is None] + found


def _pack(asked: Sequence[JudgePrompt]) -> bytes:
    first = next((one for one in asked if one.trajectory_id is None), None)
    rows = [_retold(one, first) if one.number and first is not None else _whole(one) for one in asked]
    return zlib.compress(sql.storable_text(json.dumps(rows, ensure_ascii=False)).encode())


def _whole(one: JudgePrompt) -> dict[str, Any]:
    return {"trajectory_id": one.trajectory_id, "messages": one.messages}


def _retold(one: JudgePrompt, first: JudgePrompt) -> dict[str, Any]:
    """Encode a later request about the group by the first one."""
    words = {first.words[name]: word for name, word in one.words.items() if first.words.get(name)}
    pairs = zip(one.messages, first.messages, strict=True)
    lines = [{"role": own["role"], "lines": encode_lines(own["content"], its["content"], words)} for own, its in pairs]
    return {"number": one.number, "words": words, "retold": lines}


def _unpack(packed: bytes, number: int) -> list[JudgePrompt]:
    """Unpack prompts; of several requests about the group, only the one with that `number`.

    A score of an old release, which stored no prompts of single trajectories, has only the messages about its group.
    """
    found = json.loads(zlib.decompress(packed))
    whole = [JudgePrompt(**one) for one in found if "messages" in one] or [JudgePrompt(None, found)]
    later = next((one for one in found if one.get("number") == number and number), None)
    of_group = [one for one in whole if one.trajectory_id is None]
    if number:
        of_group = [_read(later, of_group[0])] if later is not None else []
    return of_group + [one for one in whole if one.trajectory_id is not None]


def _read(later: Mapping[str, Any], first: JudgePrompt) -> JudgePrompt:
    pairs = zip(later["retold"], first.messages, strict=True)
    messages = [
        {"role": own["role"], "content": decode_lines(own["lines"], its["content"], later["words"])}
        for own, its in pairs
    ]
    return JudgePrompt(None, messages, later["number"])


@dataclass(frozen=True, slots=True)
class ReplyVerdict:
    """One reply's verdict on one trajectory: a score in 0..1 (the mean of its sub-scores), and the reason."""

    trajectory_id: str
    score: float
    explanation: str
    subscores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewReply:
    """The reply to one of several requests about a group; `number` counts them from 0.

    `reply`: None if no reply could be parsed (`failed` says why) or if a trajectory of the group was deleted.
    `verdicts`: in the order in which the judge saw the trajectories. `weight`: the reply's weight in the score.
    """

    number: int
    judge_model: str
    judge_version: str | None
    weight: float
    reply: str | None
    failed: str | None
    verdicts: Sequence[ReplyVerdict] = ()
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    latency_s: float | None = None


async def write_replies(conn: AsyncConnection, score_id: str, replies: Sequence[NewReply]) -> None:
    """Write a score's replies, inside the caller's transaction."""
    if replies:
        await conn.execute(insert(judge_replies), [{"score_id": score_id, **_row(one)} for one in replies])


async def load_replies(conn: AsyncConnection, score_ids: Iterable[str]) -> Mapping[str, tuple[NewReply, ...]]:
    """Return the replies of scores, by score id; only scores of several requests have any."""
    query = select(judge_replies).where(judge_replies.c.score_id.in_(list(score_ids)))
    found: defaultdict[str, list[NewReply]] = defaultdict(list)
    for row in await conn.execute(query.order_by(judge_replies.c.score_id, judge_replies.c.number)):
        found[row.score_id].append(sql.as_view(NewReply, row, verdicts=_verdicts(row.verdicts)))
    return {id_: tuple(replies) for id_, replies in found.items()}


def _row(one: NewReply) -> dict[str, Any]:
    verdicts = json.dumps([asdict(words) for words in one.verdicts], ensure_ascii=False)
    values = asdict(one) | {"verdicts": verdicts}
    return {name: sql.storable_text(value) if isinstance(value, str) else value for name, value in values.items()}


def _verdicts(written: str | None) -> tuple[ReplyVerdict, ...]:
    return tuple(ReplyVerdict(**one) for one in json.loads(written)) if written else ()


@dataclass(frozen=True, slots=True)
class CachedVerdicts:
    """A judge's cached verdict on one trajectory: JSON, and the judge version that gave it."""

    verdicts: str
    judge_version: str | None


@dataclass(frozen=True, slots=True)
class NewVerdicts:
    """A new verdict of a judge on one trajectory."""

    hash: str
    trajectory_id: str
    verdicts: str
    judge_version: str | None


async def find_verdicts(project: Project, hashes: Sequence[str]) -> dict[str, CachedVerdicts]:
    """Return the cached verdicts of the same requests, by hash; hashes without one are absent."""
    v = verdicts.c
    query = select(v.hash, v.verdicts, v.judge_version).where(v.project_id == project.id, v.hash.in_(hashes))
    async with project.store.read() as conn:
        rows = (await conn.execute(query)).all()
    return {row.hash: CachedVerdicts(row.verdicts, row.judge_version) for row in rows}


async def keep_verdicts(project: Project, said: Sequence[NewVerdicts], *, anew: bool = False) -> None:
    """Cache verdicts, except those on trajectories that were deleted meanwhile.

    Existing ones stay; with `anew` they are replaced.
    """
    texts = ("project_id", "hash", "trajectory_id", "verdicts", "judge_version")
    row = select(*(bindparam(f"new_{name}", type_=Text) for name in texts), now())
    row = row.where(exists().where(trajectories.c.id == bindparam("new_trajectory_id", type_=Text)))
    # in order, so that two writers of the same verdicts do not deadlock
    in_order = sorted(said, key=lambda one: one.hash)
    values = [{f"new_{name}": value for name, value in asdict(one).items()} for one in in_order]
    async with project.store.write() as conn:
        new = sql.insert(conn, verdicts).from_select([*texts, "created_at"], row)
        newer = {name: new.excluded[name] for name in ("trajectory_id", "verdicts", "judge_version", "created_at")}
        in_place = new.on_conflict_do_update(index_elements=["project_id", "hash"], set_=newer)
        statement = in_place if anew else new.on_conflict_do_nothing()
        await conn.execute(statement, [{"new_project_id": project.id, **value} for value in values])
