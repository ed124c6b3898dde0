"""Test whether a version behaves worse: a paired comparison with another one, by judged first turns or scenarios.

The other one is the live version, or an earlier one (`proxy.gate.earlier`).

Owns: a pair as rows, who won it, when enough pairs were measured, and requesting attempts at held-out scenarios from
the learner through the store. Refuses: judging, sampling (`proxy.gate.sanity`), and attempts and success of scenarios
(the learner's).

First turns: a pair is a group of two trajectories with purpose eval and origin shadow. A judge scores it as any other
group, without seeing which version answered, and it is never trained on. Each pair is judged twice, in an order drawn
each time. The first pairs reuse the answers that the sanity check sampled. A version that fails that check is not
judged. The reuse does not make a sound version more likely to fail.

Answers or attempts that the live version gave for its own gate are not reused: it passed because of them, so they are
biased in its favour, and the test's error rate would not hold.
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
from recorder.setting_changes.follower import SettingsFollower
from recorder.states import CallState, CampaignState, Confidence, Origin, Purpose
from recorder.stats.significance_tests import SequentialTestResult, test_mean
from recorder.store.changes import Topic
from recorder.store.database import Project, Store

ALPHA: Final = 0.05
BATCH: Final = 8  # pairs that are sampled and judged at a time
AGAIN: Final = 4  # most samples per first turn: more would give that turn too much weight
UNSCORED: Final = "the judge scored no pair"
LOOK_S: Final = 1.0  # between two checks whether the budget still allows judging
TIE: Final = 1e-6  # rewards nearer than this are equal


@dataclass
class PairWins:
    """The pairs so far: 1 for a pair that the version won, 0 for one that it lost, values between for a tie."""

    at_least: float
    values: list[float] = field(default_factory=list)
    shares: Mapping[str, float] = field(default_factory=dict)  # further figures for the version's row

    @property
    def doubt(self) -> SequentialTestResult:
        """The test of the claim that it wins at least this share."""
        return test_mean(self.values, at_least=self.at_least, alpha=ALPHA)

    @property
    def decided(self) -> bool:
        """Whether it is shown to be worse, or not to be worse: further pairs change neither."""
        lost = [1 - value for value in self.values]
        return self.doubt.shown_worse or test_mean(lost, at_least=1 - self.at_least, alpha=ALPHA).shown_worse

    @property
    def figures(self) -> dict[str, float]:
        """The figures for the version's row."""
        rate = {"win_rate": self.doubt.mean} if self.values else {}
        return {"pairs": len(self.values), **rate, **self.shares}


@dataclass(frozen=True, slots=True)
class BehaviourArms:
    """The two versions that are compared, and what that needs. `live`: the live version, or an earlier one."""

    store: Store
    recorder: Recorder
    replica: Replica
    alias: AliasView
    version: VersionView
    live: VersionView
    follower: SettingsFollower | None = None  # the budgets of judging; None: none


async def ask_first_turns(
    arms: BehaviourArms, pairs: Sequence[AnswerPair], questions: Sequence[EngineQuestion], most: int, won: PairWins
) -> str:
    """Have up to `most` pairs judged, until they decide; values are added to `won` as they come.

    Starts with `pairs`, one for each first turn or none; for further pairs the first turns are sampled (again), `AGAIN`
    times each in all. First each is sampled once, so that few pairs differ most. Then all further answers to one follow
    each other, so that those of a batch share its prompt (`ask_both`).

    Ends early if the judge could score no pair of a batch, or may not judge any more. Returns the reason if pairs are
    missing, else "". Raises EngineUnreachable, StoreError.
    """
    if not await has_judge(arms):
        return "no judge is running to compare behaviour (`hone judge`)"
    further = (question for question in questions for _ in range(AGAIN - 1))
    todo: list[AnswerPair | EngineQuestion] = [*(pairs or questions), *further]
    del todo[most:]
    for first in range(0, len(todo), BATCH):
        held = await judging_hold(arms)
        seen = await _batch(arms, todo[first : first + BATCH]) if held is None else []
        won.values += seen
        if won.decided:
            return ""
        if not seen:
            held = held or await judging_hold(arms)
            return f"judging of pairs has stopped: {held.why}" if held else "" if won.values else UNSCORED
    return ""


async def has_judge(arms: BehaviourArms) -> bool:
    """Whether a judge is running."""
    return bool(await list_holders(Project(arms.store, arms.alias.project_id), leases.JUDGE))


async def judging_hold(arms: BehaviourArms) -> BudgetHold | None:
    """The budget that forbids judging a pair, if any: it belongs to no campaign."""
    if arms.follower is None:
        return None
    return await budgets.judging_hold(Project(arms.store, arms.alias.project_id), arms.follower.learn)


async def _batch(arms: BehaviourArms, todo: Sequence[AnswerPair | EngineQuestion]) -> list[float]:
    """The value of each pair that was judged at least once; questions are sampled first."""
    questions = [question for question in todo if isinstance(question, EngineQuestion)]
    new_pairs = await ask_both(arms.replica, questions, arms.version.engine_name, arms.live.engine_name)
    pairs = [*(pair for pair in todo if isinstance(pair, AnswerPair)), *new_pairs]
    return [value for value in await judge_pairs(arms, pairs) if value is not None]


async def judge_pairs(arms: BehaviourArms, pairs: Sequence[AnswerPair]) -> list[float | None]:
    """Have each pair judged twice; return the value of each: 1 for a win, 0 for a loss, between them for a tie.

    None: the version did not answer, or the judge gave no reward. Raises StoreError.
    """
    both = {
        at: (pair.question, pair.candidate, pair.live) for at, pair in enumerate(pairs) if pair.candidate is not None
    }
    written = await asyncio.gather(*(_write(arms, *sampled) for sampled in both.values() for _ in range(2)))
    scored = await _judged(arms, [group.id for group in written])
    values = [await _outcome(arms.store, group, scored[group.id]) for group in written]
    judged = zip(values[::2], values[1::2], strict=True)
    known = [[value for value in twice if value is not None] for twice in judged]
    of_pair = dict(zip(both, (fmean(twice) if twice else None for twice in known), strict=True))
    return [of_pair.get(at) for at in range(len(pairs))]


async def judge_alone(
    arms: BehaviourArms, answers: Sequence[tuple[EngineQuestion, EngineAnswer]]
) -> list[float | None]:
    """Have each answer of the version judged by itself; return the reward of each, None without one."""
    written = await asyncio.gather(
        *(_write_arm(arms, new_id("gate"), 1, question, arms.version, answer) for question, answer in answers)
    )
    scored = await _judged(arms, [group_id for group_id, _ in written])
    rewards = [await _rewards(arms.store, scored[group_id]) for group_id, _ in written]
    return [own.get(trajectory_id) for own, (_, trajectory_id) in zip(rewards, written, strict=True)]


async def _judged(arms: BehaviourArms, group_ids: Sequence[str]) -> Mapping[str, str | None]:
    """The groups' scores when all are judged; the existing ones when the judge may not judge any more."""
    judging = asyncio.create_task(scores.wait_for_scores(arms.store, group_ids))
    try:
        while not (await asyncio.wait({judging}, timeout=LOOK_S))[0]:
            if await judging_hold(arms) is not None:
                return (await scores.current_scores(arms.store, group_ids))[0]
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
    arms: BehaviourArms, question: EngineQuestion, candidate: EngineAnswer, live: EngineAnswer
) -> _PairGroup:
    """Write a pair as a group that is ready for a judge, in a random order."""
    name = new_id("gate")
    todo = [(arms.version, candidate), (arms.live, live)]
    order = [0, 1]
    secrets.SystemRandom().shuffle(order)
    refs = await asyncio.gather(*(_write_arm(arms, name, len(todo), question, *todo[arm]) for arm in order))
    own, other = (refs[order.index(arm)][1] for arm in (0, 1))
    return _PairGroup(refs[0][0], own, other)


async def _write_arm(
    arms: BehaviourArms, group: str, size: int, question: EngineQuestion, version: VersionView, answered: EngineAnswer
) -> tuple[str, str]:
    """Write one answer as an ended trajectory; return its group's id and its own."""
    request = _request(arms.alias.name, question)
    address = Address(
        trajectory=new_id("side"),
        group=group,
        group_size=size,
        purpose=Purpose.EVAL,
        origin=Origin.SHADOW,
        done=True,
        tags={"gate": arms.version.name},
    )
    project_id, alias_id = arms.alias.project_id, arms.alias.id
    # the group is the examined version's: its gate waits for it (`recorder.queue.claims`)
    ref = await arms.recorder.trajectory_at(
        project_id, alias_id, address, request, arms.version.id, own_version=version.id
    )
    at = time.time()
    logprobs = [float(p) for p in answered.logprobs]
    choice = SampledChoice(0, answered.message, answered.token_ids, logprobs, answered.finish_reason)
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
        choices=[choice],
        usage=None,
        response_meta=None,
        http_status=200,
        error=None,
        started_at=at,
        first_token_at=None,
        finished_at=at,
    )
    await arms.recorder.commit(turn)
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
        body_hash=secrets.token_bytes(16),  # unique, so that none is taken for a retry
        sampling=SamplingParameters(temperature=question.temperature, max_tokens=question.max_tokens),
    )


async def _outcome(store: Store, group: _PairGroup, score_id: str | None) -> float | None:
    """1, 0 or a tie; None if the judge gave no reward to one of the two."""
    rewards = await _rewards(store, score_id)
    new, old = rewards.get(group.candidate), rewards.get(group.live)
    if new is None or old is None:
        return None
    return 0.5 if abs(new - old) <= TIE else float(new > old)


async def _rewards(store: Store, score_id: str | None) -> Mapping[str, float | None]:
    return await scores.score_rewards(store, score_id) if score_id is not None else {}


EVEN: Final = 0.5


async def ask_scenarios(arms: BehaviourArms, most: int, won: PairWins) -> str:
    """Have at most `most` pairs attempted, until they decide; values are written to `won`. Returns why there are none,
    else "".

    A request of an earlier controller is continued. Raises StoreError.
    """
    request = await gate_requests.request_gate(arms.store, arms.version, arms.live, most)
    with arms.store.watch.on(Topic.CAMPAIGNS) as news:
        while True:
            await news.wait()
            result = await gate_requests.gate_result(arms.store, request)
            won.values, won.shares = [pair_value(pair) for pair in result.pairs], _shares(result.pairs)
            if won.decided:
                await gate_requests.end_request(arms.store, request, CampaignState.FINISHED, gate_requests.DECIDED)
                return ""
            if result.state is not CampaignState.RUNNING:
                return _why_none(result)


def pair_value(pair: GatePair) -> float:
    """Return 1 for a scenario at which only the version succeeded, 0 if only the live one did, and 0.5 for a tie."""
    return EVEN + (pair.candidate - pair.live) / 2


def _shares(pairs: Sequence[GatePair]) -> dict[str, float]:
    """How often each arm succeeded: pairs alone cannot distinguish "both always" from "neither ever"."""
    if not pairs:
        return {}
    return {"success": fmean(pair.candidate for pair in pairs), "success_live": fmean(pair.live for pair in pairs)}


def _why_none(result: GateResult) -> str:
    if result.state is CampaignState.FAILED:
        return f"its scenarios could not be attempted: {result.reason}"
    return "" if result.pairs else "no attempt at its scenarios was measured"


async def give_up_request(arms: BehaviourArms) -> str | None:
    """Stop waiting for requested attempts; return how many pairs were measured, in words. None: no request was made."""
    request = await gate_requests.find_request(arms.store, arms.version, arms.live)
    if request is None:
        return None
    await gate_requests.end_request(arms.store, request, CampaignState.FINISHED, gate_requests.LATE)
    seen = len((await gate_requests.gate_result(arms.store, request)).pairs)
    if await leases.list_holders(Project(arms.store, arms.alias.project_id), leases.trainer_lease(arms.alias.name)):
        return f"{seen} pairs of attempts were measured"
    return f"{seen} pairs of attempts were measured, and no learner is running (`hone learn`)"
