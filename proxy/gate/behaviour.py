"""Is a version's behaviour worse? Openings answered by it and by the live version, judged in pairs and tested.

Owns: a pair as rows, who won it, and when enough were judged. A pair is a group of two runs of purpose eval and origin
shadow: a judge scores it as any other and sees of neither whose it is, and nothing of it is trained on. Each pair is
judged twice, each time in an order drawn anew. Refuses: judging, and sampling (`proxy.gate.sanity`).

The first pairs are the answers that sanity looked at: a version which fails there is judged no more, and that makes no
sound one fail here. What the live version answered for its own gate is not used again: it passed because of that, so it
flatters it, and the test's error rate would not hold.

Is a version's behaviour worse? Held-out scenarios, attempted as it and as the live version, tested pair by pair.

Owns: asking the learner for them through the store, reading pairs as they come, when enough came, and why there are
none. Refuses: attempts and success (the learner's), and a judge: nobody is asked for an opinion.

A live version's attempts for its own gate are not used again: it passed because of them, so they flatter it, and the
test's error rate would not hold.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from proxy.engine.answers import EngineAnswer, EngineQuestion
from proxy.engine.replica import Replica
from proxy.gate.sanity import AnswerPair, ask_both
from recorder.capture.recorder import Recorder
from recorder.ids import new_id
from recorder.messages.calls import (
    Address,
    Attribution,
    RecordedCall,
    RecordedRequest,
    SampledChoice,
    SamplingParameters,
)
from recorder.queue import gate_requests, leases
from recorder.queue.gate_requests import GatePair, GateResult
from recorder.queue.judging import scores
from recorder.queue.leases import list_holders
from recorder.queue.training import budgets
from recorder.queue.training.budgets import BudgetHold
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.settings import LearnSettings
from recorder.states import CallState, CampaignState, Confidence, Origin, Purpose
from recorder.stats.sequential_tests import SequentialTestResult, test_mean
from recorder.store.changes import Topic
from recorder.store.database import Project, Store

ALPHA: Final = 0.05
BATCH: Final = 8  # pairs that are asked and judged at a time
AGAIN: Final = 4  # how often one opening is asked at most: more would tell of it alone
UNSCORED: Final = "the judge could score no pair"
LOOK_S: Final = 1.0  # between two looks whether the judge may still judge
TIE: Final = 1e-6  # rewards nearer than this are equal


@dataclass
class PairWins:
    """What was seen so far: 1 for a pair that the version won, 0 for one that it lost, between them a tie."""

    at_least: float
    values: list[float] = field(default_factory=list)
    shares: Mapping[str, float] = field(default_factory=dict)  # what else the row is told of them

    @property
    def doubt(self) -> SequentialTestResult:
        """The test of the claim that it wins at least so often."""
        return test_mean(self.values, at_least=self.at_least, alpha=ALPHA)

    @property
    def decided(self) -> bool:
        """Whether it is shown worse, or shown not to be: neither changes with more pairs."""
        lost = [1 - value for value in self.values]
        return self.doubt.shown_worse or test_mean(lost, at_least=1 - self.at_least, alpha=ALPHA).shown_worse

    @property
    def figures(self) -> dict[str, float]:
        """For the version's row."""
        rate = {"win_rate": self.doubt.mean} if self.values else {}
        return {"pairs": len(self.values), **rate, **self.shares}


@dataclass(frozen=True, slots=True)
class BehaviourArms:
    """Who is compared, and where."""

    store: Store
    recorder: Recorder
    replica: Replica
    alias: AliasView
    version: VersionView
    live: VersionView
    learn: LearnSettings = field(default_factory=LearnSettings)  # what judging may cost


async def ask_first_turns(
    sides: BehaviourArms, pairs: Sequence[AnswerPair], openings: Sequence[EngineQuestion], most: int, won: PairWins
) -> str:
    """Have judged up to `most` pairs, until they decide; what is seen is added to `won` as it comes.

    First those that are at hand, each opening's, then further ones, for which the openings are asked again.
    Ends early where the judge could score none of a batch, or may judge no more. In words why, where it could not be
    asked. Raises EngineUnreachable, StoreError.
    """
    if not await list_holders(Project(sides.store, sides.alias.project_id), leases.JUDGE):
        return "no judge runs that could compare behaviour"
    todo: list[AnswerPair | EngineQuestion] = [*pairs, *(question for _ in range(AGAIN - 1) for question in openings)]
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


async def _held(sides: BehaviourArms) -> BudgetHold | None:
    """What keeps the judge from a pair: it belongs to no campaign."""
    return await budgets.judging_hold(Project(sides.store, sides.alias.project_id), sides.learn)


async def _batch(sides: BehaviourArms, todo: Sequence[AnswerPair | EngineQuestion]) -> list[float]:
    """Who won each pair that was answered by both and judged at least once; a question is asked first."""
    questions = [question for question in todo if isinstance(question, EngineQuestion)]
    asked = await ask_both(sides.replica, questions, sides.version.engine_name, sides.live.engine_name)
    pairs = [*(pair for pair in todo if isinstance(pair, AnswerPair)), *asked]
    both = [(pair.question, pair.candidate, pair.live) for pair in pairs if pair.candidate is not None]
    written = await asyncio.gather(*(_write(sides, *sampled) for sampled in both for _ in range(2)))
    scored = await _judged(sides, [group.id for group in written])
    values = [await _outcome(sides.store, group, scored[group.id]) for group in written]
    judged = zip(values[::2], values[1::2], strict=True)
    known = [[value for value in twice if value is not None] for twice in judged]
    return [sum(twice) / len(twice) for twice in known if twice]


async def _judged(sides: BehaviourArms, group_ids: Sequence[str]) -> Mapping[str, str | None]:
    """The groups' scores, when a judge is through with them; those that are there, where it may judge no more."""
    judging = asyncio.create_task(scores.wait_for_scores(sides.store, group_ids))
    try:
        while not (await asyncio.wait({judging}, timeout=LOOK_S))[0]:
            if await _held(sides) is not None:
                return (await scores.current_scores(sides.store, group_ids))[0]
        return judging.result()
    finally:
        judging.cancel()
        await asyncio.gather(judging, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _PairGroup:
    id: str
    candidate: str  # trajectory ids
    live: str


async def _write(
    sides: BehaviourArms, question: EngineQuestion, candidate: EngineAnswer, live: EngineAnswer
) -> _PairGroup:
    """A pair as a group that is ready for a judge; which side is written first is drawn."""
    name = new_id("gate")
    todo = [(sides.version, candidate), (sides.live, live)]
    secrets.SystemRandom().shuffle(todo)
    refs = await asyncio.gather(*(_side(sides, name, question, *side) for side in todo))
    ids = {version.id: ref for (version, _), (_, ref) in zip(todo, refs, strict=True)}
    return _PairGroup(refs[0][0], ids[sides.version.id], ids[sides.live.id])


async def _side(
    sides: BehaviourArms, group: str, question: EngineQuestion, version: VersionView, answered: EngineAnswer
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
    turn = RecordedCall(
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


def _request(model: str, question: EngineQuestion) -> RecordedRequest:
    return RecordedRequest(
        dialect="chat",
        endpoint="/v1/chat/completions",
        model=model,
        stream=False,
        messages=question.messages,
        tools=question.tools,
        response_format=None,
        rest={},
        body_hash=secrets.token_bytes(16),  # no two of them are one request, sent again
        sampling=SamplingParameters(max_tokens=question.max_tokens),
    )


async def _outcome(store: Store, group: _PairGroup, score_id: str | None) -> float | None:
    """1, 0 or a tie; None where the judge gave one of the two no reward."""
    rewards = await scores.score_rewards(store, score_id) if score_id is not None else {}
    new, old = rewards.get(group.candidate), rewards.get(group.live)
    if new is None or old is None:
        return None
    return 0.5 if abs(new - old) <= TIE else float(new > old)


EVEN: Final = 0.5


async def ask_scenarios(sides: BehaviourArms, most: int, won: PairWins) -> str:
    """Have at most `most` pairs attempted, until they decide; what is seen stands in `won`. Why there were none, if so.

    A wish that an earlier controller made is gone on with. Raises StoreError.
    """
    wish = await gate_requests.request_gate(sides.store, sides.version, sides.live, most)
    with sides.store.watch.on(Topic.CAMPAIGNS) as news:
        while True:
            await news.wait()
            found = await gate_requests.gate_result(sides.store, wish)
            won.values, won.shares = [pair_value(pair) for pair in found.pairs], _shares(found.pairs)
            if won.decided:
                await gate_requests.end_request(sides.store, wish, CampaignState.FINISHED, gate_requests.DECIDED)
                return ""
            if found.state is not CampaignState.RUNNING:
                return _why_none(found)


def pair_value(pair: GatePair) -> float:
    """1 for a scenario at which the version alone succeeded, 0 where the live one alone did, between them a tie."""
    return EVEN + (pair.candidate - pair.live) / 2


def _shares(pairs: Sequence[GatePair]) -> dict[str, float]:
    """How often each side succeeded: a test of pairs alone does not tell "both always" from "neither ever"."""
    if not pairs:
        return {}
    return {"success": fmean(pair.candidate for pair in pairs), "success_live": fmean(pair.live for pair in pairs)}


def _why_none(found: GateResult) -> str:
    if found.state is CampaignState.FAILED:
        return f"its scenarios could not be attempted: {found.reason}"
    return "" if found.pairs else "no attempt at its scenarios could be measured"


async def give_up_request(sides: BehaviourArms) -> str | None:
    """Wait no longer for what was asked; in words how much of it came. None: it was not asked for."""
    wish = await gate_requests.find_request(sides.store, sides.version.id)
    if wish is None:
        return None
    await gate_requests.end_request(sides.store, wish, CampaignState.FINISHED, gate_requests.LATE)
    seen = len((await gate_requests.gate_result(sides.store, wish)).pairs)
    if await leases.list_holders(Project(sides.store, sides.alias.project_id), leases.trainer_lease(sides.alias.name)):
        return f"{seen} pairs of attempts were measured"
    return f"{seen} pairs of attempts were measured, and no learner runs (`hone learn`)"
