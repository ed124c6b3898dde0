"""A store in which there is something of everything that a page shows, made by the recorder and the work of all stages.

Two aliases; of the first five versions: one live, one rejected, one rolled back, one a canary. Groups in every state;
one of eight attempts, one of eight attempts of thirty turns; a campaign; tools that fail; what people said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from recorder.capture.recorder import Recorder
from recorder.curation.datasets import add_to_dataset, create_dataset
from recorder.curation.saved_filters import FilteredList, save_filter
from recorder.queue import attempts, campaigns, claims, feedback, leases
from recorder.queue.attempts import NewAttempt
from recorder.queue.campaigns import GroupBinding, NewScenario
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart, NewScore
from recorder.queue.notifications import Notification, add_sent
from recorder.queue.training import steps
from recorder.registry import alias_moves, aliases, versions
from recorder.registry.aliases import ensure_alias
from recorder.registry.replicas import report_replica
from recorder.settings import RecorderSettings
from recorder.states import AttemptState, CampaignState, Purpose, TrajectoryState, VersionState
from recorder.store import ledger
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import trajectories
from recorder.views.campaigns.events import VALIDATION, Validation, encode_event
from tests.browser.agent import Agent, at, thinking
from tests.recorder.descending import Half, Line
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.score_rows import new_score
from tests.recorder.talk import assistant
from tests.recorder.totals.facts import count_all

LONG_TURNS: Final = 30
EIGHT: Final = 8


@dataclass(frozen=True)
class Rich:
    """Where it lies, and the ids of what tests look for."""

    data: Path
    run: str  # with everything that a run may have
    call: str  # of that run: answered with tokens
    open_run: str
    long_run: str
    group: str  # scored, eight attempts
    long_group: str  # eight attempts of thirty turns
    preferred: str  # the best attempt of `group`
    version: str  # of those that were retired: it may be made live again
    canary: str
    campaign: str
    score: str  # of `group`


async def make(data: Path, long_turns: int = LONG_TURNS) -> Rich:
    """The whole of it, in a new folder; the attempts of its long group have so many turns."""
    store = await open_store(data, RecorderSettings(), migrate=True)
    recorder = Recorder(store, RecorderSettings())
    await recorder.start()
    try:
        return await _Maker(store, recorder, data, await _line(store, "helpdesk"), long_turns).all()
    finally:
        await recorder.stop()
        await store.close()


async def _line(store: Store, name: str) -> Line:
    alias = await ensure_alias(Project(store, PROJECT), name, "base-model", "fingerprint")
    return Line(Rows(store), alias)


@dataclass
class _Maker:
    """Makes one part after the other."""

    store: Store
    recorder: Recorder
    data: Path
    line: Line
    long_turns: int

    async def all(self) -> Rich:
        """Everything, in the order in which it would have come about."""
        await self._engines()
        retired = await self._versions()
        campaign = await self._campaign()
        canary = await self._canary()
        await self._other_alias()
        await self._left_out()
        group, best = await self._compared("order-4821", EIGHT)
        long_group, long_run = await self._compared("claim-77", EIGHT, turns=self.long_turns)
        (run, call), open_run = await self._run_with_everything(), await self._open()
        await count_all(Project(self.store, PROJECT))  # what `hone serve` does beside the calls
        await self._notified()
        await self._collected([run, best])
        [score] = await scores.list_scores(self.store, group)
        known = (run, call, open_run, long_run, group, long_group, best, retired, canary, campaign, score.id)
        return Rich(self.data, *known)

    async def _collected(self, ids: Sequence[str]) -> None:
        """A dataset, and a saved filter of each list."""
        project = Project(self.store, PROJECT)
        await create_dataset(project, "hard-cases", "anna")
        await add_to_dataset(project, "hard-cases", ids)
        for list_, name, query in (
            (FilteredList.TRAJECTORIES, "errors of today", "state=errored&since=24h"),
            (FilteredList.GROUPS, "could not be judged", "state=unscored"),
        ):
            await save_filter(project, list_, name, query, "anna")

    async def _notified(self) -> None:
        """A notification that was sent, one that it counts, and one that the receiver refused."""
        live, health = "helpdesk@2 is live: the gate decided.", "entropy: a health rule signals in learning of helpdesk"
        rows = (
            ("ntf_1", "version_live", live, "/hone/versions/helpdesk@2", "sent", 1, None, None),
            ("ntf_2", "alarm", f"{health}, at step 2.", "/hone/training", "counted", 0, "ntf_3", None),
            ("ntf_3", "alarm", f"{health}, at step 3.", "/hone/training", "failed", 1, None, "a.example answered 404"),
        )
        for id_, kind, what, link, state, tries, counted_in, error in rows:
            at, omitted = 1_740_000_000.0, int(id_ == "ntf_3")
            times = (at if tries else None, None, at if state == "sent" else None)
            one = Notification(id_, kind, what, link, {}, at, state, omitted, counted_in, tries, *times, error)
            await add_sent(Project(self.store, PROJECT), one)

    async def _engines(self) -> None:
        known: dict[str, Any] = {
            "base_model": "base-model",
            "base_fingerprint": "fingerprint",
            "loaded": ["base-model"],
        }
        await report_replica(Project(self.store, PROJECT), "http://127.0.0.1:8000", state="up", detail=None, **known)
        await report_replica(
            Project(self.store, PROJECT), "http://127.0.0.1:8001", state="down", detail="refused", **known
        )

    # --- versions

    async def _versions(self) -> str:
        """Versions 1 to 4: retired, live, rejected, rolled back. The first's name."""
        for number in (1, 2):
            await self._learned(f"week-{number}", number)
            await self._promoted()
        await self._learned("week-3", 3)
        await self._gate(passes=False)
        await self._learned("week-4", 4)
        await self._promoted()
        await alias_moves.rollback(self.store, self.line.alias.id, who="anna", reason="customers were told less")
        return "helpdesk@1"

    async def _learned(self, name: str, number: int) -> None:
        await self._group(name, 4, purpose=Purpose.TRAIN)
        half = await self.line.begin()
        assert half is not None
        await self._published(half, number)

    async def _published(self, half: Half, number: int) -> None:
        """As a trainer does: a folder, then the step; every run of its groups was trained on."""
        folder = self.data / "adapters" / half.version.engine_name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(half.version.id)
        digest = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
        members = [await self.line.rows.members(claim.group_id) for claim in half.claims]
        await steps.finish_step(
            self.store, half.step.id, version_id=half.version.id, path=str(folder), engine_name=folder.name,
            manifest_sha256=digest, metrics=measured(number), checkpoint_path=None, groups=half.claims,
            trained=[id_ for ids in members for id_ in ids], lease=half.lease,
        )  # fmt: skip
        await leases.release_lease(self.store, half.lease)

    async def _gate(self, *, passes: bool) -> str:
        """The version that waits is examined; its id."""
        version = await versions.find_pending_version(self.store, self.line.alias.id)
        assert version is not None
        await versions.mark_version(self.store, version.id, VersionState.LOADED)
        told: dict[str, Any] = {"kl_mean": 0.03, "times_as_long": 1.1, "entropy": 0.42, "entropy_live": 0.45}
        limits = {"length_times": 4.0, "entropy_times": 4.0, "win_at_least": 0.4}
        if passes:
            await versions.pass_gate(self.store, version.id, "sane", who="gate", figures=told, limits=limits)
        else:
            why, told = "length: its answers are 4.1 times as long", told | {"times_as_long": 4.1}
            await versions.reject_version(
                self.store, version.id, why, lessons="left_out", who="gate", figures=told, limits=limits
            )
        return version.id

    async def _promoted(self) -> None:
        version = await self._gate(passes=True)
        await alias_moves.set_live(self.store, self.line.alias.id, version, why="gate", who="controller")
        await self._meet_new_version()

    async def _meet_new_version(self) -> None:
        self.line.alias = await aliases.get_alias(Project(self.store, PROJECT), self.line.alias.name)

    async def _canary(self) -> str:
        await self._meet_new_version()
        await self._learned("week-5", 5)
        version = await self._gate(passes=True)
        await alias_moves.set_canary(self.store, self.line.alias.id, version, 0.1, who="anna", reason="watch it first")
        return "helpdesk@5"

    # --- groups

    async def _group(self, name: str, size: int, *, turns: int = 1, purpose: Purpose = Purpose.TRAIN) -> str:
        """Attempts at one task, of which each ends otherwise, and their score; the group's id."""
        group = await self._attempted(name, size, turns=turns, purpose=purpose)
        await self._score(group)
        return group

    async def _attempted(self, name: str, size: int, *, turns: int = 1, purpose: Purpose = Purpose.TRAIN) -> str:
        runs = [await self._attempt(name, number, size, turns, purpose) for number in range(size)]  # in a fixed order
        return str((await self.line.rows.get(trajectories, runs[0]))["group_id"])

    async def _attempt(self, name: str, number: int, size: int, turns: int, purpose: Purpose) -> str:
        task = f"Where is my order {name}? It was to come on Monday."
        agent = Agent(self.recorder, self.line.alias, at(name, number, size, purpose, shop="north"), task)
        await agent.use("orders__find", '{"order": "found", "parcel": "P-77"}', order_id=name)
        for step in range(turns - 2):
            other = "parcels__hold" if (number + step) % 4 == 3 else "parcels__track"
            last = f"seen at depot {step}" if step % 5 else "no such parcel"
            await agent.use(other, last, failed=not step % 5, said=f"I look at depot {step}.", order_id=f"P-{step}")
        await agent.answer(thinking(_ENDINGS[number % len(_ENDINGS)]))
        return await agent.end()

    async def _score(self, group: str) -> None:
        claim = await claims.claim_one_for_judging(self.store, group, "judge", 60)
        assert claim is not None
        await scores.record_score(self.store, claim, judgement(await self.line.rows.members(group)))

    async def _compared(self, name: str, size: int, turns: int = 3) -> tuple[str, str]:
        """A scored group, and its best attempt, of which somebody said something."""
        group = await self._group(name, size, turns=turns)
        best = (await self.line.rows.members(group))[-1]
        await feedback.add_feedback(
            Project(self.store, PROJECT), best, "thumbs", True, "this is what we want", tags={"by": "anna"}
        )
        return group, best

    async def _left_out(self) -> None:
        """Groups that came to nothing, or not yet to anything."""
        unscored = await self._attempted("refund-1", 2)
        claim = await claims.claim_one_for_judging(self.store, unscored, "judge", 60)
        assert claim is not None
        await scores.mark_unscored(self.store, claim, "judge_unreachable", "503 from the judge", 600)
        left = await self._attempted("refund-2", 2)
        claim = await claims.claim_one_for_judging(self.store, left, "judge", 60)
        assert claim is not None
        await scores.exclude_group(self.store, claim, "no_signal", {"why": "all rewards are equal"})
        disputed = await self._attempted("refund-5", 3)
        claim = await claims.claim_one_for_judging(self.store, disputed, "judge", 60)
        assert claim is not None
        judged = judgement(await self.line.rows.members(disputed))
        await scores.record_score(self.store, claim, replace(judged, agreement=-0.2, disputed="they disagree"))
        judging = await self._attempted("refund-3", 2)
        assert await claims.claim_one_for_judging(self.store, judging, "judge", 3600) is not None
        await self._attempted("refund-4", 2)

    async def _other_alias(self) -> None:
        """A second alias, whose trainer is at work."""
        first, self.line = self.line, await _line(self.store, "support")
        await self._group("password", 3)
        assert await self.line.begin() is not None
        self.line = first

    # --- single runs

    async def _run_with_everything(self) -> tuple[str, str]:
        """Tools, thinking, an errand, a sub-agent, a retry, a call with two choices, feedback; with its last call."""
        address = at("return-9", 0, None, channel="mail", customer="C-19")
        agent = Agent(self.recorder, self.line.alias, address, "I want to send order 9 back.\nHow do I do that?")
        await agent.errand()
        await agent.use("orders__find", '{"error": "no such order"}', failed=True, order_id="9")
        await agent.refused()
        await agent.use("orders__find", '{"order": "0009", "value": 120}', said="Perhaps with zeros.", order_id="0009")
        await agent.sub_agent()
        await agent.call(agent.messages, [assistant("Send it back."), thinking("Send it to depot 4, free of charge.")])
        last = await agent.answer(thinking("Send it to depot 4 within fourteen days; the label is in your mail."))
        run = await agent.end()
        for name, value, comment in (("good", True, "polite"), ("score", 0.75, None), ("comment", "a label!", None)):
            await feedback.add_feedback(Project(self.store, PROJECT), run, name, value, comment, tags={"by": "anna"})
        await Rows(self.store).set(trajectories, run, session="mail-19")
        broken = Agent(self.recorder, self.line.alias, at("return-9", 1, None), "I want to send order 9 back.")
        await broken.refused()
        await broken.end(TrajectoryState.ERRORED, "engine_down")
        return run, last.call_id

    async def _open(self) -> str:
        agent = Agent(self.recorder, self.line.alias, at("now-1", 0, 4), "Is anybody there?")
        await agent.say("Yes. What may I do for you?")
        return agent.run

    # --- a campaign

    async def _campaign(self) -> str:
        """A campaign over two tasks, one step of which was made."""
        alias = self.line.alias
        made = await campaigns.create_campaign(
            Project(self.store, PROJECT), alias.id, "spring", {"steps": 3, "group_size": 2, "goal": 0.9}
        )
        await campaigns.add_scenarios(
            self.store, made.id, "train", [NewScenario(f"task-{n}", {"order": n}) for n in (1, 2)]
        )
        tasks = await campaigns.list_scenarios(self.store, made.id, "train")
        named = [(f"spring.1.{n}", task.id) for n, task in enumerate(tasks)]
        await campaigns.bind_groups(
            Project(self.store, PROJECT), made.id, alias.id, [GroupBinding(*pair, 2) for pair in named]
        )
        planned = [NewAttempt(task, 1, Purpose.TRAIN, n, group, str(n)) for group, task in named for n in range(2)]
        await attempts.new_attempts(self.store, made.id, planned)
        for taken in await attempts.claim_attempts(self.store, made.id, "runner", 60, limit=len(planned)):
            agent = Agent(
                self.recorder, alias, at(taken.group_external_id, taken.number, 2), f"Do {taken.scenario.external_id}."
            )
            await agent.say("Done.")
            await attempts.finish_attempt(self.store, taken, AttemptState.DONE, answer="Done.")
        await self._validated(made.id)
        await campaigns.finish_campaign(self.store, made.id, CampaignState.STOPPED, "goal_reached")
        return made.id

    async def _validated(self, campaign: str) -> None:
        """The measures of the base and of the first versions at held-out scenarios."""
        seen = [
            Validation(number, f"helpdesk@{number}", success, None, 50, 0, 9.0)
            for number, success in enumerate((0.34, 0.62, 0.94))
        ]
        rows = [LedgerRow(PROJECT, "campaign", campaign, VALIDATION, encode_event(one)) for one in seen]
        async with self.store.write() as conn:
            await ledger.write_rows(conn, rows)


def measured(number: int) -> dict[str, float]:
    """What a step says of itself."""
    return {
        "groups": 1.0, "groups_trained": 1.0, "reward_mean": 0.3 + number / 10, "reward_std": 0.3 - number / 50,
        "loss": 0.02 / number, "ratio_mean": 1.001, "ratio_max": 1.3, "clip_fraction": 0.02 * number,
        "entropy": 0.5 - number / 30, "kl_engine": 0.001 * number, "kl_base": 0.01 * number, "logprob_gap": 1e-6,
        "logprob_gap_max": 1e-5, "trained_tokens": 900.0, "forward_tokens": 2100.0, "rows": 4.0, "tokens": 2100.0,
        "rows_per_trajectory": 1.0, "tokens_per_s": 800.0 + 20 * number, "optimizer_fresh": 0.0,
    } | {f"seconds_{phase}": seconds for phase, seconds in (("read", 0.1), ("train", 2.5), ("write", 0.2))}  # fmt: skip


def judgement(runs: Sequence[str]) -> NewScore:
    """What a judge says of a group: the later, the better."""
    parts = []
    for number, run in enumerate(runs):
        value = number / max(len(runs) - 1, 1)
        parts += [
            NewPart(run, scores.REWARD, value),
            NewPart(run, "ruler", value, 0.8, _REASONS[number % len(_REASONS)]),
            NewPart(run, "short", 1.0 - value / 2, 0.2, "fewer words than the others"),
        ]
    reply = '{"scores": [' + ", ".join(f'{{"id": {n}, "score": {n / 10}}}' for n in range(len(runs))) + "]}"
    return new_score(
        recipe_hash="recipe", judge_model="judge-model", judge_version="1", prompt_hash=f"prompt-{runs[0]}",
        order_seed=7, reply=reply, tokens_in=2400, tokens_cached=800, tokens_out=180, cost_usd=0.0031, latency_s=2.4,
        parts=parts,
        prompt=[{"role": "system", "content": "You judge attempts."}, {"role": "user", "content": "…\n" * 400}],
    )  # fmt: skip


_ENDINGS: Final = (
    "It will come on Tuesday.",
    "I do not know where your parcel is.",
    "Your parcel P-77 was seen at depot 4 this morning. It comes tomorrow before noon.",
    "Please call us.",
)
_REASONS: Final = (
    "It names a day that no tool said.",
    "It gives up although the parcel can be tracked.",
    "It tracked the parcel, and says only what it was told.",
    "It sends the customer away.",
)
