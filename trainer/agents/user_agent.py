"""The user's agent: a child process in the user's Python and folder that runs many attempts at a time.

Owns: the requests to the child (`recorder.processes.user_code_host` runs in it), and the outcome of one attempt.
Refuses: the life of the process (`recorder.processes.child_host`), the store, and deciding who is at fault
(`trainer.agents.attempts`, which knows the recorded calls).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from recorder.base.function_paths import is_function_path
from recorder.processes import user_code_host
from recorder.processes.child_environment import list_withheld_variables
from recorder.processes.child_host import ChildError, ChildFailed, ChildHost, ChildSpec, ChildTimeout
from trainer.errors import AgentUnusable

_START_TIMEOUT_S = 120.0
_STOP_S = 2.0


class AttemptEnding(StrEnum):
    """How an attempt ended, according to its host."""

    DONE = "done"
    ERROR = "error"  # it raised, or exited with another code than 0
    TIMEOUT = "timeout"
    LOST = "lost"  # the host died, and with it every attempt it ran


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """The outcome of one attempt."""

    ending: AttemptEnding
    answer: Any = None
    error: str | None = None
    network: bool = False  # the cause was a broken connection or a server's fault


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """The function or command, its folder and its Python."""

    target: str  # module:function, or a shell command
    log: Path
    python: Path = Path(sys.executable)
    cwd: Path = field(default_factory=Path.cwd)
    env: tuple[str, ...] = ()  # names of Hone's environment variables that it also receives
    use: Literal["agent", "measure"] = "agent"
    # Beyond its own limit plus the host's grace, an attempt has no answer because user code blocks the host.
    stuck_after_s: float = 5.0

    @property
    def kind(self) -> str:
        """The host's name for its kind."""
        return self.use if is_function_path(self.target) else "command"


class UserAgent:
    """One child process. `start()` returns before the import is over, so that it overlaps with other start-ups."""

    def __init__(self, spec: AgentSpec) -> None:
        self.spec = spec
        self._host = ChildHost(
            ChildSpec(
                [spec.python, user_code_host.__file__],
                start={"kind": spec.kind, "target": spec.target, "parent": os.getpid()},
                start_limit_s=_START_TIMEOUT_S,
                in_turn=False,
                cwd=spec.cwd,
                named_env=spec.env,
                output=spec.log,
            )
        )

    async def start(self) -> None:
        """Start the process if none runs.

        Raises `AgentUnusable` if the Python or the folder does not exist.
        """
        try:
            await self._host.launch()
        except OSError as e:
            raise self._unusable(e) from e

    async def ready(self) -> None:
        """Wait until the function is imported. Raises `AgentUnusable` with the import's error."""
        try:
            await self._host.ready()
        except (ChildError, OSError) as e:
            raise self._unusable(e) from e

    async def run(self, task: Mapping[str, Any], env: Mapping[str, str], timeout_s: float) -> AttemptOutcome:
        """Run one attempt: `task` becomes the function's argument, `env` its environment.

        Raises `AgentUnusable` if there is no way to run any attempt.
        """
        job = {"task": dict(task), "env": dict(env), "timeout_s": timeout_s}
        limit_s = timeout_s + user_code_host.CANCEL_GRACE_S + self.spec.stuck_after_s
        try:
            return self._outcome(await self._host.request(job, limit_s))
        except OSError as e:
            raise self._unusable(e) from e
        except ChildError as e:
            if e.starting:
                raise self._unusable(e) from e
            if isinstance(e, ChildTimeout):  # an async agent blocks its event loop: the other attempts are repeated
                why = f"no answer within {timeout_s:g} s, and its host had to be killed"
                return AttemptOutcome(AttemptEnding.TIMEOUT, error=why)
            return AttemptOutcome(AttemptEnding.LOST, error=self._ended(e))

    async def stop(self) -> None:
        """End the process and every process it started."""
        await self._host.stop(_STOP_S)

    def _outcome(self, reply: Mapping[str, Any]) -> AttemptOutcome:
        error = reply.get("error")
        why = self._explained(error) if error is not None else None
        return AttemptOutcome(AttemptEnding(reply["ending"]), reply.get("answer"), why, reply.get("network", False))

    def _explained(self, error: str) -> str:
        """An error, with the names of the variables it mentions that the agent does not receive."""
        names = list_withheld_variables(error, self.spec.env)
        if not names:
            return error
        return f"{error.rstrip()}\n(not passed on to the agent: {', '.join(names)}. See campaign.agent_env.)"

    def _unusable(self, error: ChildError | OSError) -> AgentUnusable:
        spec = self.spec
        shown = f"{spec.target!r} (Python {spec.python}, folder {spec.cwd})"
        match error:
            case OSError():
                why = error.strerror or error
                return AgentUnusable(f"cannot start {spec.python} in {spec.cwd}: {why}. Check --python and --cwd.")
            case ChildFailed():
                return AgentUnusable(f"{shown} cannot be used: {self._explained(str(error))}")
            case ChildTimeout():
                return AgentUnusable(f"{shown} was not imported within {_START_TIMEOUT_S:.0f} s. See {spec.log}.")
            case _:
                return AgentUnusable(f"{shown}: {self._ended(error)}")

    def _ended(self, error: ChildError) -> str:
        return f"the agent's host process ended with status {error.end.status}; its last output is in {self.spec.log}"
