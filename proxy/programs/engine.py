"""The engine as a program to keep running: when it is well, how long it may take, where its log goes.

Refuses: its command line and its health check (`proxy.engine.command`).
"""

from __future__ import annotations

from pathlib import Path

from proxy.engine.command import EngineCommand, health_check
from proxy.programs.supervise import Program
from proxy.settings.sections import EngineSettings


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
