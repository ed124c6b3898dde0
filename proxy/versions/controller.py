"""The controller: brings written versions into service, keeps engines loaded, unloads versions that are not used.

Owns: the order verify → load → probe → gate → alias, and the drain. One proxy of a project does this, the holder of the
lease "controller"; the others only follow the store. Refuses: decisions about loaded versions
(`proxy.versions.promotion`), training, and deleting folders.

A version that fails is rejected with its reason, while the live one stays in service.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

from proxy.engine.base import base_folder
from proxy.engine.command import dtype_of, engine_urls, served_fingerprint
from proxy.engine.replica import Replica, differing_bases
from proxy.errors import AdapterError, AdapterNotVisible, EngineError, EngineUnreachable
from proxy.settings.sections import EngineSettings, ProxySettings
from proxy.versions import pins, verification
from proxy.versions.adapter_files import AdapterFiles
from proxy.versions.alias_shares import AliasShares
from proxy.versions.fleet import Fleet, Member
from proxy.versions.guests import GuestVersions
from proxy.versions.pauses import EnginePauser
from proxy.versions.promotion import PromotionDecider, TrialMonitor
from proxy.versions.routing import ServiceRouter, wait_for_event
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.capture.recorder import Recorder
from recorder.errors import Conflict, LeaseLost, StoreError
from recorder.models.refusals import find_adapter
from recorder.queue import leases
from recorder.queue.leases import Lease
from recorder.queue.training import adapter_trials
from recorder.queue.training.adapter_trials import AdapterTrial
from recorder.registry import replicas
from recorder.registry.aliases import Holdback, ensure_alias
from recorder.registry.versions import VersionView, get_versions, list_pinned_versions, mark_version
from recorder.setting_changes.follower import SettingsFollower
from recorder.states import VersionState
from recorder.store.changes import ChangeSignal, Topic
from recorder.store.database import Project

log = logging.getLogger(__name__)

LEASE_S = 15.0
RENEW_EVERY_S = 5.0
PINS_EVERY_S = 1.0  # trajectories end often, and their versions may stay loaded a moment longer
BREATH_S = 0.1  # between two rounds
RETRY_S = 0.5  # after a refusal of the store or an engine, and while the base's files are missing
DRAIN_S = 0.25  # while requests hold a version that is to be unloaded: they send no signal when they end
UNFIT_S = 5.0  # interval of checks of an unfit engine, even if it serves the same
STOP_S = 5.0  # time limit for the running round at shutdown: an engine may hang


class Controller:
    """Runs inside a proxy: `async with controller.running(): …`."""

    def __init__(
        self,
        project: Project,
        versions: ServiceRouter,
        recorder: Recorder,
        *,
        engine: EngineSettings,
        proxy: ProxySettings,
        follower: SettingsFollower,
        default_base: str | None,
        engine_key: str | None,
        files: AdapterFiles | None = None,
    ) -> None:
        self.rounds = 0  # finished
        self._project = project
        self._versions = versions
        self._engine = engine
        self._proxy = proxy
        self.follower = follower
        self._default_base = default_base
        self._files = files or AdapterFiles()
        members = [Member(Replica(url, engine_key), engine.health_timeout_s) for url in engine_urls(engine)]
        self._fleet = Fleet(project, members, self.wake)
        versions.on_failure = self._fleet.suspect
        self._guests = GuestVersions(self.wake, versions.refresh, engine.max_loras)
        self._deciding = PromotionDecider(
            project.store, versions, recorder, self._fleet, follower, self.wake, self._again, self._guests
        )
        self._on_trial = TrialMonitor(self._deciding)
        self._shares = AliasShares(project, versions, follower)
        self._pauser = EnginePauser(project, self._fleet, engine, self._again)
        self._lease: Lease | None = None
        self._failing, self._broken, self._unseen = RateLimitedLog(log), RateLimitedLog(log), RateLimitedLog(log)
        self._pinned: set[str] = set()
        self._base_shapes: Mapping[str, tuple[int, ...]] | None = None
        self._stopping = asyncio.Event()
        self._news = ChangeSignal()
        self._sleepers: set[ChangeSignal] = set()
        self._again_s: float | None = None  # when the next round is due without a change

    def wake(self) -> None:
        """Start a round, after a change outside the store."""
        self._news.tell()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Declare the aliases, then run until the block ends, while this proxy holds the lease."""
        await self._declare(None)
        self._fleet.start()
        tasks = {
            asyncio.create_task(self._run(), name="controller"),
            asyncio.create_task(self._hold_lease(), name="the controller's lease"),
            asyncio.create_task(self._follow_pins(), name="pins"),
        }
        try:
            yield
        finally:
            self._stopping.set()
            for sleeper in self._sleepers:
                sleeper.tell()
            _, slow = await asyncio.wait(tasks, timeout=STOP_S)
            for task in slow:
                task.cancel()
            await asyncio.gather(*tasks, self._deciding.stop(), self._files.stop(), return_exceptions=True)
            await self._fleet.stop()
            if self._lease is not None:
                await leases.release_lease(self._project.store, self._lease)

    async def _run(self) -> None:
        """Run a round after every change, and when the last one asked for another."""
        of_gpu = (Topic.LEASES,) if self._pauser.is_active else ()
        with (
            self._waiting(Topic.SERVICE, Topic.PROXIES, *of_gpu) as self._news,
            self.follower.telling(self._news.tell),
        ):
            while not self._stopping.is_set():
                await self._news.wait(self._again_s)
                if self._lease is not None and not self._stopping.is_set():
                    await self._round()
                    await wait_for_event(self._stopping, BREATH_S)

    async def _round(self) -> None:
        self._again_s = None
        try:
            await self.tick()
        except (StoreError, Conflict) as e:  # the next round reads the store again
            self._failing(logging.WARNING, "the controller could not finish its round: %s", e)
            self._again(RETRY_S)
        except Exception as e:  # noqa: BLE001 - a bug in one round must not end the controller
            self._broken(logging.ERROR, "the controller's round failed", error=e)
            self._again(RETRY_S)

    def _again(self, within_s: float) -> None:
        """Request a round within this many seconds, even without a change."""
        self._again_s = within_s if self._again_s is None else min(within_s, self._again_s)

    async def _follow_pins(self) -> None:
        """Start a round after trajectories and groups end: they may have been the last to need a version."""
        with self._waiting(Topic.RUNS, Topic.GROUPS) as ended:
            while not self._stopping.is_set():
                await ended.wait()
                self.wake()
                await wait_for_event(self._stopping, PINS_EVERY_S)

    @contextlib.contextmanager
    def _waiting(self, *topics: Topic) -> Iterator[ChangeSignal]:
        """Subscribe to topics, so that `running` can wake the waiter at the end."""
        with self._project.store.watch.on(*topics) as news:
            self._sleepers.add(news)
            yield news
            self._sleepers.discard(news)

    async def _hold_lease(self) -> None:
        """Take the lease when it is free and renew it, even while a round waits for an engine."""
        with self._waiting(Topic.LEASES) as news:
            while not self._stopping.is_set():
                due_s = RETRY_S
                try:
                    due_s = await self._keep_lease()
                except LeaseLost as e:
                    log.warning("%s", e)
                    self._lease = None
                except StoreError as e:
                    self._failing(logging.WARNING, "the controller's lease could not be renewed: %s", e)
                if self._lease is None:
                    await news.wait(due_s)
                else:
                    await wait_for_event(self._stopping, due_s)

    async def _keep_lease(self) -> float:
        """Renew the lease, or take it if it is free; return the seconds until that is due again."""
        if self._lease is not None:
            self._lease = await leases.renew_lease(self._project.store, self._lease, LEASE_S)
            await self._fleet.report()
            return RENEW_EVERY_S
        self._lease = await self._take_lease()
        if self._lease is not None:
            return RENEW_EVERY_S
        await leases.release_dead(self._project, leases.CONTROLLER)
        return await leases.seconds_until_free(self._project, leases.CONTROLLER)

    async def _take_lease(self) -> Lease | None:
        lease = await leases.acquire_lease(self._project, leases.CONTROLLER, self._versions.proxy_id, LEASE_S)
        if lease is not None:
            await self._fleet.take_over()
            self.wake()
        return lease

    async def tick(self) -> None:
        """Run one round: engines and their pauses, then trainers' trials and new versions, then unloading."""
        await self._identify()
        await self._versions.refresh()
        await self._pauser.tick(self._lease, {version.engine_name for version in self._kept()})
        await self._serve_kept_versions()
        await self._shares.apply()
        await self._deciding.promote_gated()
        if self._guests.has_room(self._kept()):
            await self._try_adapters()
        written = await get_versions(self._project, [VersionState.WRITTEN])
        for member in self._fleet.members if not written else ():
            member.unseen = None
        for version in written:
            if self._fleet.up() and self._guests.has_room(self._kept()):
                await self._admit(version)
        await self._deciding.examine_loaded()
        await self._deciding.promote_gated()
        await self._on_trial.look()
        await self._drain()
        self.rounds += 1

    # --- engines

    async def _identify(self) -> None:
        """Determine the base's fingerprint, from local files or else from an engine, and check engines and aliases by
        it.
        """
        if self._base_shapes is None:
            self._base_shapes = await self._read_local_base()
        for member in self._fleet.members:
            if member.served is None or (member.state in ("up", "asleep") and member.fingerprint is not None):
                continue
            await self._hold_to_bases(member)
            if member.unfit is not None:
                self._again(UNFIT_S)

    async def _hold_to_bases(self, member: Member) -> None:
        """Check that an engine serves the base that the aliases name and that their versions were trained on."""
        assert member.served is not None
        serves = ", ".join(sorted(set(member.served.bases.values()))) or "no base"
        try:
            self._require_bases(member)
            self._require_one_base(member)
            member.fingerprint = await self._local_fingerprint() or await member.replica.fingerprint()
            await self._declare(member.fingerprint)
        except EngineUnreachable as e:
            member.mark_down(str(e))
        except EngineError as e:
            member.mark_unfit(str(e))
        except Conflict as e:
            member.mark_unfit(f"it serves {serves}: {e}")
        else:
            member.mark_fit()

    def _require_bases(self, member: Member) -> None:
        """Refuse aliases with an adapter as their base: their versions would be trained on top of another LoRA."""
        assert member.served is not None
        folder = base_folder(self._engine)
        if folder is not None and (adapter := find_adapter(str(self._engine.base), folder)) is not None:
            raise EngineError(f"{adapter.found} {adapter.todo}")
        for name in self.follower.aliases():
            base_model = self._base_model(name)
            if base_model in member.served.adapters and base_model not in member.served.bases:
                raise EngineError(
                    f"{base_model!r} is an adapter of the engine {member.url}, not a base for the alias {name!r}: set "
                    f"base_model in [aliases.{name}] to one of {', '.join(sorted(member.served.bases)) or 'its bases'}."
                )

    def _require_one_base(self, member: Member) -> None:
        """Refuse an engine with another base than the engines in use: a request may go to any of them."""
        assert member.served is not None
        for other in self._fleet.members:
            if other is member or other.served is None or other.unfit is not None or other.fingerprint is None:
                continue
            if differ := differing_bases(member.served, other.served):
                name, ours, theirs = differ
                raise EngineError(
                    f"it serves {name} from {ours}, but {other.url}, which is in use, from {theirs}: all engines must "
                    "serve one base. Correct engine.urls, or start them with the same model."
                )

    def _base_model(self, alias: str) -> str:
        return self.follower.aliases()[alias].base_model or self._default_base or alias

    async def _read_local_base(self) -> Mapping[str, tuple[int, ...]] | None:
        """Shapes of a local base's weights, once it is there; aliases get their base before an engine is up."""
        folder = base_folder(self._engine)
        if folder is None:
            if self._engine.base is not None:  # it is being downloaded
                self._again(RETRY_S)
            return None
        with contextlib.suppress(Conflict):  # reported for the engine, once it answers
            await self._declare(await self._local_fingerprint())
        return await asyncio.to_thread(verification.base_shapes, folder)

    async def _local_fingerprint(self) -> str | None:
        folder = base_folder(self._engine)
        return await asyncio.to_thread(served_fingerprint, self._engine, folder) if folder else None

    async def _declare(self, fingerprint: str | None) -> None:
        """Create the declared aliases, or set their base. Raises Conflict if they were trained on another base."""
        for name, settings in self.follower.aliases().items():
            base_model = self._base_model(name)
            await ensure_alias(
                self._project, name, base_model, fingerprint,
                recipe=settings.notes, baseline=settings.baseline,
                held=Holdback(settings.holdback_share, settings.rollback_watch_s),
            )  # fmt: skip

    def _kept(self) -> list[VersionView]:
        snapshot = self._versions.snapshot
        kept = pins.adapters_to_keep(
            snapshot.aliases.values(),
            snapshot.versions,
            self._pinned,
            max_loras=self._engine.max_loras,
            max_age=self._proxy.pin_max_age_versions,
        )
        return self._guests.added(kept)

    async def _serve_kept_versions(self) -> None:
        self._pinned = await list_pinned_versions(self._project)
        guest, kept = self._guests.current, self._kept()
        await self._fleet.reconcile(kept)
        await self._fleet.report()
        if guest is not None and (up := self._fleet.up()):
            guest.settle(kept, up)
        if any(member.lacks for member in self._fleet.members):
            self._again(RETRY_S)

    # --- a trainer's trial

    async def _try_adapters(self) -> None:
        """Load the adapters that trainers offer into every engine once, and unload them; answer each trainer."""
        if members := self._fleet.up():
            for trial in await adapter_trials.list_offered_trials(self._project):
                await self._try_adapter(trial, members)

    async def _try_adapter(self, trial: AdapterTrial, members: Sequence[Member]) -> None:
        assert trial.engine_name is not None
        assert trial.path is not None
        refusal = None
        try:
            if not self._are_here(trial.path, trial.manifest_sha256):
                return
            await self._verify(Path(trial.path), trial.manifest_sha256)
            for member in members:
                await member.try_adapter(trial.engine_name, trial.path)
        except AdapterError as e:
            if self._may_come(e):
                return
            refusal = str(e)
        except EngineError as e:  # no answer, or it is still loaded: the next round tries again
            self._failing(logging.WARNING, "an engine could not try %s: %s", trial.engine_name, e)
            self._again(RETRY_S)
            return
        log.info("%s was %s", trial.engine_name, "accepted" if refusal is None else f"refused: {refusal}")
        await adapter_trials.answer_trial(self._project.store, trial.id, refusal)

    # --- a new version

    async def _admit(self, version: VersionView) -> None:
        """written → loaded, or rejected. An engine that goes away meanwhile is not the version's fault, nor one whose
        host has not fetched it yet.
        """
        try:
            if not await self._check_files(version):
                return
            began = time.monotonic()
            if not await self._load(version):
                return
            loaded = time.monotonic()
            how, figures = await self._prove(version)
        except EngineUnreachable as e:
            await self._deciding.count_death(version, e)
        except AdapterError as e:
            await self._deciding.reject(version, e.code, str(e))
        except EngineError as e:
            await self._deciding.reject(version, "probe_failed", str(e))
        else:
            figures |= {"load_s": loaded - began, "probe_s": time.monotonic() - loaded}
            await mark_version(
                self._project.store,
                version.id,
                VersionState.LOADED,
                expect=VersionState.WRITTEN,
                verified=how,
                metrics={**version.metrics, **figures},
            )
            log.info("%s is loaded (verified by %s)", version.name, how)
            await self._versions.refresh()
            await self._serve_kept_versions()

    async def _load(self, version: VersionView) -> bool:
        """Load a version into every engine that is up. Return False to try again in the next round.

        An engine whose host has not fetched the version holds it up for `adapters.wait_s`, or until one has it.
        """
        blind = []
        for member in self._fleet.up():
            try:
                await member.load(version)
                member.unseen = None
            except AdapterNotVisible as e:
                if not self._may_come(e):
                    raise
                member.unseen = str(e)
                blind.append(member)
        waited_s = self._versions.clock() - version.state_at
        if not blind or (waited_s > self._files.wait_s and len(blind) < len(self._fleet.up())):
            return True
        await self._fleet.report()
        return False

    def _are_here(self, path: str, manifest_sha256: str | None) -> bool:
        """Whether a folder is on this disk; else it is being fetched, and another round follows soon."""
        if self._files.are_here(Path(path), manifest_sha256):
            return True
        self._again(RETRY_S)
        return False

    def _may_come(self, error: AdapterError) -> bool:
        """Whether a refusal may end by itself, because an engine's host still fetches the folder: try again soon."""
        if not (self._files.are_fetched and isinstance(error, AdapterNotVisible)):
            return False
        self._unseen(logging.WARNING, "%s", error)
        self._again(RETRY_S)
        return True

    async def _check_files(self, version: VersionView) -> bool:
        """Whether the files are here, and right; False: they are being fetched. Raises AdapterError."""
        if version.path is None:
            raise AdapterError("file_missing", f"{version.name} has no path")
        alias = self._deciding.alias_of(version)
        if alias.base_fingerprint != version.base_fingerprint:
            raise AdapterError(
                "base_mismatch", f"{version.name} was trained on another base than that of {alias.name} now"
            )
        if not self._are_here(version.path, version.manifest_sha256):
            return False
        await self._verify(Path(version.path), version.manifest_sha256)
        return True

    async def _verify(self, folder: Path, manifest_sha256: str | None) -> None:
        await asyncio.to_thread(
            verification.verify_adapter,
            folder,
            manifest_sha256=manifest_sha256,
            max_rank=self._engine.max_lora_rank,
            base_shapes=self._base_shapes,
        )

    async def _prove(self, version: VersionView) -> tuple[verification.Verified, dict[str, float]]:
        """Ask every replica that holds it for the probe's logprobs, one context at a time. Raises AdapterError for a
        wrong answer.
        """
        assert version.path is not None
        expected = await asyncio.to_thread(verification.read_probe, Path(version.path))
        if expected is None or not verification.is_distinguishable(expected, dtype_of(self._engine)):
            return "identity", {}
        figures: dict[str, float] = {}
        for member in (one for one in self._fleet.up() if one.holds(version)):
            answers = [
                await member.replica.logprobs(version.engine_name, c.prompt_token_ids, c.token_ids)
                for c in expected.contexts
            ]
            verdict = verification.judge_probe(expected, answers)
            if not verdict.accepted:
                raise AdapterError(
                    "probe_mismatch",
                    f"{member.url} does not answer as {version.name}: its logprobs are {verdict.to_new:.2e} from the "
                    f"new version's and {verdict.to_parent:.2e} from its parent's",
                )
            figures = {"probe_to_new": verdict.to_new, "probe_to_parent": verdict.to_parent}
        return "logprobs", figures

    # --- unloading

    async def _drain(self) -> None:
        """Unload adapters that are not kept, once no proxy holds them. Proxies no longer send new requests to them."""
        kept_names = {v.engine_name for v in self._kept()}
        idle = [m for m in self._fleet.up() if m.adapters.keys() - kept_names]
        if not idle:
            return
        await self._serve_kept_versions()
        await self._versions.refresh()
        held = await self._held()
        ours = {(v.engine_name, v.path): v for v in await self._all_versions()}
        for member in idle:
            for name in member.adapters.keys() - kept_names:
                # an unknown adapter, or one of another folder, was loaded by another program: it stays
                version = ours.get((name, member.adapters[name]))
                if version is None:
                    continue
                if version.id in held:
                    self._again(DRAIN_S)
                else:
                    await self._unload(member, name)

    async def _held(self) -> set[str]:
        """Version ids that some proxy serves, or may still send a request to."""
        held = set(self._versions.holding())
        for row in await replicas.list_live_proxies(self._project, replicas.PROXY_GONE_S):
            if row.id != self._versions.proxy_id:
                held.update(row.in_flight)
        return held

    async def _all_versions(self) -> list[VersionView]:
        spoilt = await get_versions(self._project, [VersionState.REJECTED, VersionState.ABANDONED])
        return [*self._versions.snapshot.versions.values(), *spoilt]

    async def _unload(self, member: Member, name: str) -> None:
        try:
            await member.unload(name)
            log.info("%s is unloaded from %s", name, member.url)
        except EngineError as e:  # the next round retries
            self._again(RETRY_S)
            log.warning("%s", e)
