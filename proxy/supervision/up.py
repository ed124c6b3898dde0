"""`hone up`: run engine, proxy, judge and learner as child processes.

Owns: which programs there are, and the order in which they start and stop. Refuses: their work, their command lines
(`proxy.engine.command`), run.json (`proxy.programs.run_file`), checks (`proxy.doctor`), and the output format
(`proxy.supervision.console`).

While starting, any misconfigured program stops everything. Later, a misconfigured judge or learner stays down, as does
a learner that is killed again and again in one phase, and its last log lines are shown, while the others continue:
agents keep their model, and their calls are still recorded. A failed proxy or engine stops everything, since nothing
can be served without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from proxy.doctor import checkup, machine
from proxy.doctor.engines import check_stored_bases
from proxy.engine.command import EngineCommand, engine_command, engine_key, engine_urls, health_check
from proxy.engine.startup_phase import startup_phase
from proxy.errors import ConfigError, StartError
from proxy.programs.run_file import SupervisedProgram, read_run_file, remove_run_file, write_run_file
from proxy.programs.start_request import Job, requested_job
from proxy.settings.display import as_environment
from proxy.settings.gpus import visible_gpus
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import EngineSettings
from proxy.supervision.console import ConsoleOutput, EventPrinter, ProgramLine
from proxy.supervision.first_request import describe_ready, local_url
from proxy.supervision.jobs import JobRunner
from proxy.supervision.supervisor import Program, ProgramState, Supervisor
from recorder.base.findings import Finding, FindingLevel, has_errors
from recorder.errors import StoreError
from recorder.processes.phase_file import LEARNER_PHASE
from recorder.processes.signals import call_on_stop
from recorder.queue.training import gpu_pauses
from recorder.registry.keys import has_keys
from recorder.registry.replicas import forget_replica
from recorder.setting_changes.follower import SettingsFollower
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store


def engine_program(engine: EngineSettings, command: EngineCommand, log: Path) -> Program:
    """The engine as a program to supervise."""
    return Program(
        name="engine",
        argv=command.argv,
        env=command.env,
        unset=command.unset,
        log=log,
        ready=health_check(command.url),
        check_every_s=engine.health_interval_s,
        start_timeout_s=engine.start_timeout_s,
        unresponsive_s=engine.health_timeout_s,
        grace_s=engine.stop_timeout_s,
    )


PROXY_START_TIMEOUT_S = 60.0
JOB_GRACE_S = 30.0  # a campaign ends its attempts and its step's rows, and can go on later
STARTUP_LINES = 200  # of the engine's log, in which it says what it does
LOG_TAIL_LINES = 5  # log lines of a failed child, shown with its state
KILLED_LEARNER = "Lower trainer.token_budget, or give the trainer more memory; then start `hone up` again"
HUNG_LEARNER = "the learner no longer renewed its lease on the GPU and was killed, so that the engine can wake"
HUNG_S = 15.0  # after its lease expired: on a busy machine a renewal may be late
HUNG_LOOK_S = 2.0
_SERVING = ("engine", "proxy")


class HoneUp:
    """All programs of one data folder. `run()` returns after SIGINT or SIGTERM."""

    def __init__(
        self,
        settings: HoneSettings,
        *,
        config: Path | None,
        flags: Mapping[str, object],
        output: ConsoleOutput,
        with_judge: bool = True,
        with_learner: bool = True,
    ) -> None:
        self._settings = settings
        self._config = config
        self._environment = as_environment(flags)  # the children get this command's flags
        self._output = output
        self._with_judge = with_judge
        self._engine_runs = checkup.takes_engine(settings)
        self._with_learner = with_learner and machine.check_weights(settings)
        self.supervisors: dict[str, Supervisor] = {}
        self._stop = asyncio.Event()
        self._ending = False  # from here on no run file is written
        self._is_sharing = settings.engine.share != "split"
        self._jobs = JobRunner(settings.data, partial(requested_job, settings), self._job, output, self._tell_others)
        self._project: Project  # once the store is open

    async def run(self) -> None:
        """Start all programs, run them until SIGINT or SIGTERM, and stop them.

        Raises StartError, and ConfigError if no model is configured.
        """
        await self._check_before_start()
        store = await open_store(
            self._settings.data, self._settings.recorder, migrate=True, project=self._settings.project
        )
        self._project = Project(store, self._settings.project)
        try:
            with call_on_stop(self._stop.set):
                async with self._printing_events(store), self._ending_hung_trainer():
                    await self._run(store)
        finally:
            self._output.close()
            await store.close()

    async def _run(self, store: Store) -> None:
        stages = asyncio.create_task(self._check_stages(), name="check judge and learner")
        try:
            async with self._printing_starts():
                await self._until_stopped(self._start())
            if not self._stop.is_set():
                await self._until_stopped(self._check_after_start(store, stages))
            if not self._stop.is_set():
                async with self._jobs.serving():
                    await self._stop.wait()
            self._raise_failure()
        finally:
            stages.cancel()
            await asyncio.gather(stages, return_exceptions=True)
            await self._end()

    @contextlib.asynccontextmanager
    async def _printing_starts(self) -> AsyncIterator[None]:
        """Print, until the block ends, what is still starting."""

        async def every_second() -> None:
            while True:
                await asyncio.sleep(1.0)
                self._output.starting([_line(one) for one in self.supervisors.values()])

        task = asyncio.create_task(every_second(), name="print starts")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _printing_events(self, store: Store) -> AsyncIterator[None]:
        starting = await self._forget_engines_to_start(store)
        settings = self._settings
        project = Project(store, settings.project)
        follower = SettingsFollower(project, settings)
        events = EventPrinter(project, follower, self._output, starting=starting)
        async with follower.running():
            await events.remember()  # before anything starts, so that no event is missed
            task = asyncio.create_task(events.run(), name="print events")
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _ending_hung_trainer(self) -> AsyncIterator[None]:
        """Kill, until the block ends, a learner that keeps the GPU's memory and no longer renews its lease on it.

        The engine stays asleep until then: its memory is not free.
        """

        async def look() -> None:
            while True:
                await asyncio.sleep(HUNG_LOOK_S)
                with contextlib.suppress(StoreError):
                    pid = await gpu_pauses.find_hung_holder(self._project, HUNG_S)
                    if pid is not None and "learn" in self.supervisors and self.supervisors["learn"].kill_process(pid):
                        self._output.tell("warning", HUNG_LEARNER, {"program": "learn", "pid": pid})

        task = asyncio.create_task(look(), name="end a hung trainer") if self._is_sharing else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _may_engine_start(self) -> bool:
        """Whether no trainer is on the engine's GPU: an engine that starts takes memory that has to be free."""
        try:
            return not await gpu_pauses.is_gpu_used(self._project)
        except StoreError:
            return False

    async def _forget_engines_to_start(self, store: Store) -> Sequence[str]:
        """Delete the stored state of the engine that is about to start: it is not up yet. Returns its URL, if any."""
        urls = engine_urls(self._settings.engine) if checkup.starts_engine(self._settings) else ()
        for url in urls:
            await forget_replica(Project(store, self._settings.project), url)
        return urls

    # --- checks

    async def _check_before_start(self) -> None:
        """Run the checks that need nothing running. Raises StartError, ConfigError."""
        if self._settings.proxy.port == 0:
            self._settings.proxy.port = _free_port(self._settings.proxy.host)
        run = read_run_file(self._settings.data)
        findings = await asyncio.to_thread(checkup.check_before_start, self._settings, run, starting=True)
        if self._with_learner and not any(one.stops for one in findings):
            findings += await checkup.check_memory(self._settings, self._config, self._environment)
        stopping = [one for one in findings if one.stops]
        if stopping:
            what = ConfigError if any(one.check == machine.ALIASES for one in stopping) else StartError
            raise what("\n".join(one.line() for one in stopping))
        self._print_findings(findings)

    async def _check_stages(self) -> list[Finding]:
        checks = [checkup.check_judge] * self._with_judge + [checkup.check_learner] * self._with_learner
        looks = [look(self._settings, self._config, self._environment) for look in checks]
        return [one for found in await asyncio.gather(*looks) for one in found]

    async def _check_after_start(self, store: Store, stages: asyncio.Task[list[Finding]]) -> None:
        """Run the checks that need the programs, and print that Hone is ready."""
        findings = [
            *await check_stored_bases(store, self._settings),
            *await checkup.check_all_engines(self._settings),
            *await stages,
        ]
        self._print_findings(findings)
        self._announce(findings, with_key=await has_keys(Project(store, self._settings.project)))

    def _print_findings(self, findings: Sequence[Finding]) -> None:
        """Print errors and notes."""
        for one in findings:
            if one.verdict in (FindingLevel.WRONG, FindingLevel.NOTE):
                self._output.tell(one.verdict, one.line(), one.as_json())

    async def _start(self) -> None:
        """Start engine and proxy, then judge and learner, which need the store that the proxy creates."""
        async with asyncio.TaskGroup() as group:
            if checkup.starts_engine(self._settings):
                group.create_task(self._start_one(self._engine()))
            group.create_task(self._start_proxy_and_learning())

    async def _start_proxy_and_learning(self) -> None:
        await self._start_one(self._proxy())
        async with asyncio.TaskGroup() as group:
            if self._with_judge and self._settings.judge.is_set():  # without one Hone records, and a check reports it
                group.create_task(self._start_one(self._hone("judge")))
            if self._with_learner:
                group.create_task(self._start_one(self._learner()))

    async def _start_one(self, program: Program) -> None:
        supervisor = Supervisor(program, self._changed)
        self.supervisors[program.name] = supervisor
        await supervisor.start()

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work until it ends or a signal arrives."""
        doing = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not doing.done():
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
            return
        try:
            await doing
        except ExceptionGroup as group:  # the first failure is the cause; the others were cancelled
            raise _first(group) from None

    async def _end(self) -> None:
        """Stop learner and judge first, then the proxy, which finishes its requests, then the engine."""
        self._ending = True
        remove_run_file(self._settings.data)
        for name in ("learn", "judge", "proxy", "engine"):
            if name in self.supervisors:
                await self.supervisors[name].stop()

    # --- the programs

    def _engine(self) -> Program:
        engine = self._settings.engine
        key = engine_key(engine, self._settings.data)
        command = engine_command(engine, key=key, served_names=self._settings.base_models())
        program = engine_program(engine, command, self._log("engine"))
        return replace(program, may_start=self._may_engine_start) if self._is_sharing else program

    def _proxy(self) -> Program:
        proxy, engine = self._settings.proxy, self._settings.engine
        env = {"HONE_PROXY__PORT": str(proxy.port), "HONE_PROXY__HOST": proxy.host}
        if self._engine_runs:
            env |= {"HONE_ENGINE__PORT": str(engine.port), "HONE_ENGINE__HOST": engine.host}
        return self._hone(
            "serve",
            name="proxy",
            env=env,
            ready=health_check(self.proxy_url, "/healthz"),
            grace_s=proxy.stop_timeout_s + 10,  # interrupted calls are still recorded and answered (`draining`)
        )

    def _learner(self) -> Program:
        phase_file = self._settings.data / LEARNER_PHASE
        program = self._hone("learn", env=visible_gpus(self._settings.trainer.gpus))
        return replace(program, phase_file=phase_file, if_killed=KILLED_LEARNER)

    def _job(self, job: Job) -> Program:
        command, *arguments = job.arguments
        program = self._hone(command, name=job.name, env=visible_gpus(self._settings.trainer.gpus), grace_s=JOB_GRACE_S)
        return replace(program, argv=(*program.argv, *arguments))

    def _hone(
        self,
        command: str,
        *,
        name: str | None = None,
        env: dict[str, str] | None = None,
        ready: Callable[[], Awaitable[bool]] | None = None,
        grace_s: float = 15.0,
    ) -> Program:
        return Program(
            name=name or command,
            argv=tuple(checkup.hone_argv(command, self._settings, self._config)),
            env={**self._environment, **(env or {})},
            log=self._log(name or command),
            ready=ready,
            start_timeout_s=PROXY_START_TIMEOUT_S,
            grace_s=grace_s,
        )

    def _log(self, name: str) -> Path:
        return self._settings.data / "logs" / f"{name}.log"

    @property
    def proxy_url(self) -> str:
        """The URL of the proxy for agents, without /v1."""
        return local_url(self._settings.proxy.host, self._settings.proxy.port)

    # --- output

    def _changed(self, supervisor: Supervisor) -> None:
        shown = [_line(one) for one in self.supervisors.values()]
        self._output.programs(shown, _line(supervisor))
        self._tell_others()
        if supervisor.program.name in _SERVING and _failed_later(supervisor):
            self._stop.set()

    def _tell_others(self) -> None:
        if self._started() and not self._ending:
            self._write_run_file()

    def _raise_failure(self) -> None:
        """Raise StartError if engine or proxy failed after it had been up."""
        for name in _SERVING:
            supervisor = self.supervisors.get(name)
            if supervisor is not None and _failed_later(supervisor):
                raise StartError(f"{name} {supervisor.detail}. Its log: {supervisor.program.log}")

    def _started(self) -> bool:
        return "proxy" in self.supervisors and self.supervisors["proxy"].state is ProgramState.UP

    def _announce(self, findings: Sequence[Finding], *, with_key: bool) -> None:
        models = self._settings.model_names()
        names = ", ".join(models)
        url = f"{self.proxy_url}/v1"
        lines = describe_ready(self.proxy_url, models[0], pages=self._settings.proxy.pages, with_key=with_key)
        but = " Some checks failed: see above, or run `hone doctor`." if has_errors(findings) else ""
        facts = {"base_url": url, "models": models, "all_well": not has_errors(findings)}
        said = f"Ready: base_url {url}, model {names}. Ctrl-C stops.{but}"
        self._output.tell("ready", "\n".join([said, *lines[1:]]), facts)

    def _write_run_file(self) -> None:
        pids = {name: s.pid for name, s in self.supervisors.items() if s.pid is not None}
        write_run_file(
            self._settings.data,
            proxy_url=self.proxy_url,
            engine_urls=engine_urls(self._settings.engine),
            pids=pids,
            programs=[*self._shown_programs()],
            job=self._jobs.run,
        )

    def _shown_programs(self) -> Iterator[SupervisedProgram]:
        """The programs for other processes; with several workers, each of them has a log too."""
        for name, one in self.supervisors.items():
            yield SupervisedProgram(name, one.state, one.detail)
            workers = self._settings.proxy.workers if name == "proxy" else 1
            if workers > 1:
                yield from (SupervisedProgram(f"proxy-{n}", one.state, "a worker") for n in range(1, workers + 1))


def _failed_later(supervisor: Supervisor) -> bool:
    """Whether it failed after it had been up; an earlier failure is raised by `Supervisor.start`."""
    return supervisor.state is ProgramState.FAILED and supervisor.was_up


def _line(supervisor: Supervisor) -> ProgramLine:
    """A program for the output, with its last log lines if it ended unexpectedly."""
    detail, log = supervisor.detail, supervisor.program.log
    if supervisor.state is ProgramState.STARTING:
        is_engine = supervisor.program.name == "engine"
        phase = f" ({startup_phase(supervisor.last_lines(STARTUP_LINES))})" if is_engine else ""
        return ProgramLine(supervisor.program.name, supervisor.state, f"for {supervisor.running_s:.0f} s{phase}")
    if not detail:
        return ProgramLine(supervisor.program.name, supervisor.state, str(log))
    words = supervisor.last_lines(LOG_TAIL_LINES)
    return ProgramLine(supervisor.program.name, supervisor.state, f"{detail}. Its log: {log}\n{words}".rstrip())


def _first(group: ExceptionGroup[Exception]) -> Exception:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, ExceptionGroup) else inner


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
