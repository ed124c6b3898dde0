"""The engine is kept running with the command and the times of its settings."""

from __future__ import annotations

from pathlib import Path

from proxy.engine.command import engine_command
from proxy.settings.sections import EngineSettings
from proxy.supervision.up import engine_program


async def test_the_engine_is_run_by_its_command_and_watched_by_its_settings(tmp_path: Path) -> None:
    settings = EngineSettings(base="b", port=1, start_timeout_s=11, stop_timeout_s=12, health_timeout_s=13)
    command = engine_command(settings, key="k", device="cpu")
    program = engine_program(settings, command, tmp_path / "engine.log")
    assert (program.name, program.log) == ("engine", tmp_path / "engine.log")
    assert (program.argv, program.env, program.unset) == (command.argv, command.env, command.unset)
    assert (program.start_timeout_s, program.grace_s, program.unresponsive_s) == (11, 12, 13)
    assert program.ready is not None
    assert not await program.ready()  # nobody listens there
