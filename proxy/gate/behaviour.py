"""Is a version's behaviour worse? Openings answered by it and by the live version, judged in pairs and tested.

Owns: a pair as rows, who won it, and when enough were judged. A pair is a group of two runs of purpose eval and origin
shadow: a judge scores it as any other and sees of neither whose it is, and nothing of it is trained on. Each pair is
judged twice, each time in an order drawn anew. Refuses: judging, and sampling (`proxy.gate.checks`).

The first pairs are the answers that sanity looked at: a version which fails there is judged no more, and that makes no
sound one fail here. What the live version answered for its own gate is not used again: it passed because of that, so it
flatters it, and the test's error rate would not hold.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from proxy.engine.answers import Answered, Question
from proxy.engine.replica import Replica
from proxy.gate.betting import Doubt, doubt
from proxy.gate.checks import Pair, answers
from recorder.capture.recorder import Recorder
from recorder.content.turns import Address, Attribution, Request, SampledChoice, Sampling, Turn
from recorder.holding import presence
from recorder.holding.leases import holders
from recorder.ids import new_id
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.settings import LearnSettings
from recorder.states import CallState, Confidence, Origin, Purpose
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.work import scores, spending
from recorder.work.budgets import Held

ALPHA: Final = 0.05
BATCH: Final = 8  # pairs that are asked and judged at a time
AGAIN: Final = 4  # how often one opening is asked at most: more would tell of it alone
UNSCORED: Final = "the judge could score no pair"
LOOK_S: Final = 1.0  # between two looks whether the judge may still judge
TIE: Final = 1e-6  # rewards nearer than this are equal


@dataclass
class Won:
    """What was seen so far: 1 for a pair that the version won, 0 for one that it lost, between them a tie."""

    at_least: float
    values: list[float] = field(default_factory=list)
    shares: Mapping[str, float] = field(default_factory=dict)  # what else the row is told of them

    @property
    def doubt(self) -> Doubt:
        """The test of the claim that it wins at least so often."""
        return doubt(self.values, at_least=self.at_least, alpha=ALPHA)

    @property
    def decided(self) -> bool:
        """Whether it is shown worse, or shown not to be: neither changes with more pairs."""
        lost = [1 - value for value in self.values]
        return self.doubt.shown_worse or doubt(lost, at_least=1 - self.at_least, alpha=ALPHA).shown_worse

    @property
    def figures(self) -> dict[str, float]:
        """For the version's row."""
        rate = {"win_rate": self.doubt.mean} if self.values else {}
        return {"pairs": len(self.values), **rate, **self.shares}


@dataclass(frozen=True, slots=True)
class Sides:
    """Who is compared, and where."""

    store: Store
    recorder: Recorder
    replica: Replica
    alias: AliasView
    version: VersionView
    live: VersionView
    learn: LearnSettings = field(default_factory=LearnSettings)  # what judging may cost


async def ask(sides: Sides, pairs: Sequence[Pair], openings: Sequence[Question], most: int, won: Won) -> str:
    """Have judged up to `most` pairs, until they decide; what is seen is added to `won` as it comes.

    First those that are at hand, each opening's, then further ones, for which the openings are asked again.
    Ends early where the judge could score none of a batch, or may judge no more. In words why, where it could not be
    asked. Raises EngineUnreachable, StoreError.
    """
    if not await holders(Project(sides.store, sides.alias.project_id), presence.JUDGE):
        return "no judge runs that could compare behaviour"
    todo: list[Pair | Question] = [*pairs, *(question for _ in range(AGAIN - 1) for question in openings)]
    del todo[most:]
    for first in range(0, len(todo), BATCH):
        held = await _held(sides)
        seen = await _batch(sides, todo[first : first + BATCH]) if held is None else []
        won.values += seen
        if won.decided:
            return ""
        if not seen:
            held = held or await _held(sides)
            return f"no pair is judged any more: {held.why}" if held else "" if won.values else UNSCORED
    return ""


async def _held(sides: Sides) -> Held | None:
    """What keeps the judge from a pair: it belongs to no campaign."""
    return await spending.judging_held(Project(sides.store, sides.alias.project_id), sides.learn)


async def _batch(sides: Sides, todo: Sequence[Pair | Question]) -> list[float]:
    """Who won each pair that was answered by both and judged at least once; a question is asked first."""
    questions = [question for question in todo if isinstance(question, Question)]
    asked = await answers(sides.replica, questions, sides.version.engine_name, sides.live.engine_name)
    pairs = [*(pair for pair in todo if isinstance(pair, Pair)), *asked]
    both = [(pair.question, pair.candidate, pair.live) for pair in pairs if pair.candidate is not None]
    written = await asyncio.gather(*(_write(sides, *sampled) for sampled in both for _ in range(2)))
    scored = await _judged(sides, [group.id for group in written])
    values = [await _outcome(sides.store, group, scored[group.id]) for group in written]
    judged = zip(values[::2], values[1::2], strict=True)
    known = [[value for value in twice if value is not None] for twice in judged]
    return [sum(twice) / len(twice) for twice in known if twice]


async def _judged(sides: Sides, group_ids: Sequence[str]) -> Mapping[str, str | None]:
    """The groups' scores, when a judge is through with them; those that are there, where it may judge no more."""
    judging = asyncio.create_task(scores.when_judged(sides.store, group_ids))
    try:
        while not (await asyncio.wait({judging}, timeout=LOOK_S))[0]:
            if await _held(sides) is not None:
                return (await scores.judged(sides.store, group_ids))[0]
        return judging.result()
    finally:
        judging.cancel()
        await asyncio.gather(judging, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Group:
    id: str
    candidate: str  # trajectory ids
    live: str


async def _write(sides: Sides, question: Question, candidate: Answered, live: Answered) -> _Group:
    """A pair as a group that is ready for a judge; which side is written first is drawn."""
    name = new_id("gate")
    todo = [(sides.version, candidate), (sides.live, live)]
    secrets.SystemRandom().shuffle(todo)
    refs = await asyncio.gather(*(_side(sides, name, question, *side) for side in todo))
    ids = {version.id: ref for (version, _), (_, ref) in zip(todo, refs, strict=True)}
    return _Group(refs[0][0], ids[sides.version.id], ids[sides.live.id])


async def _side(
    sides: Sides, group: str, question: Question, version: VersionView, answered: Answered
) -> tuple[str, str]:
    """One answer as a run that ended; its group's id and its own."""
    request = _request(sides.alias.name, question)
    address = Address(
        trajectory=new_id("side"),
        group=group,
        group_size=2,
        purpose=Purpose.EVAL,
        origin=Origin.SHADOW,
        done=True,
        tags={"gate": sides.version.name},
    )
    project_id, alias_id = sides.alias.project_id, sides.alias.id
    ref = await sides.recorder.trajectory_at(project_id, alias_id, address, request, sides.version.id)
    at = time.time()
    logprobs = [float(p) for p in answered.logprobs]
    said = SampledChoice(0, answered.message, answered.token_ids, logprobs, answered.finish_reason)
    turn = Turn(
        call_id=new_id("call"),
        project_id=project_id,
        address=address,
        attribution=Attribution("path", Confidence.STATED, ref),
        request=request,
        state=CallState.COMPLETE,
        alias_id=alias_id,
        version_id=version.id,
        base_fingerprint=version.base_fingerprint,
        prompt_token_ids=answered.prompt_ids,
        choices=[said],
        usage=None,
        response_meta=None,
        http_status=200,
        error=None,
        started_at=at,
        first_token_at=None,
        finished_at=at,
    )
    await sides.recorder.commit(turn)
    assert ref.group_id is not None  # it names one
    return ref.group_id, ref.id


def _request(model: str, question: Question) -> Request:
    return Request(
        dialect="chat",
        endpoint="/v1/chat/completions",
        model=model,
        stream=False,
        messages=question.messages,
        tools=question.tools,
        response_format=None,
        rest={},
        body_hash=secrets.token_bytes(16),  # no two of them are one request, sent again
        sampling=Sampling(max_tokens=question.max_tokens),
    )


async def _outcome(store: Store, group: _Group, score_id: str | None) -> float | None:
    """1, 0 or a tie; None where the judge gave one of the two no reward."""
    rewards = await scores.rewards(store, score_id) if score_id is not None else {}
    new, old = rewards.get(group.candidate), rewards.get(group.live)
    if new is None or old is None:
        return None
    return 0.5 if abs(new - old) <= TIE else float(new > old)
