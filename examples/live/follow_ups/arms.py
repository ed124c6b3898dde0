"""The arms that are compared: one program, one traffic, and another way to learn from it.

Owns: what each arm has of settings, judge, lies and errors, and the arms of each kind of traffic. Refuses: running them
(`examples.live.follow_ups.session`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rich.console import Console

from examples.helpdesk.scripted_judge import NAME as RANKING_JUDGE
from examples.helpdesk.surroundings import Judge
from examples.live.follow_ups.reader import NAME as READER
from examples.live.follow_ups.user_script import STATE_SHARE, Shares
from examples.running.judges import scripted
from examples.running.programs import free_ports, program

HERE: Final = Path(__file__).parent
ERROR_RATE: Final = 0.1  # of the scripted reader
RULER: Final = "examples.helpdesk.scripted_judge"

ArmName = Literal["follow-ups", "shadow", "truth", "corrections"]
Traffic = Literal["followups", "corrections"]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to learn. `error_rate`: of the scripted reader; None: a scripted judge ranks shadow answers instead."""

    name: ArmName
    settings: str
    shares: Shares
    error_rate: float | None
    teaches: str  # what it learns from, for the table

    @property
    def config(self) -> Path:
        """Return the file with Hone's settings."""
        return HERE / self.settings


ARMS: Final[Mapping[ArmName, Arm]] = {
    arm.name: arm
    for arm in (
        Arm("follow-ups", "follow_ups.toml", Shares(), ERROR_RATE, "what half of the users write next"),
        Arm("shadow", "shadow.toml", Shares(), None, "shadow answers, ranked by a scripted judge"),
        Arm("truth", "follow_ups.toml", Shares(lies=0.0), 0.0, "the truth about the same half of the users' answers"),
        Arm("corrections", "corrections.toml", Shares(states=STATE_SHARE), ERROR_RATE, "follow-ups and right answers"),
    )
}

# `corrections` is compared with the same without corrections, which is the arm `follow-ups`.
OF_TRAFFIC: Final[Mapping[Traffic, tuple[ArmName, ...]]] = {
    "followups": ("follow-ups", "shadow", "truth"),
    "corrections": ("corrections", "follow-ups"),
}


def judge_of(arm: Arm) -> Judge:
    """Return what runs the arm's judge, scripted in every arm: a claim about a stated error rate is about this one."""

    @contextlib.contextmanager
    def run(data: Path, console: Console) -> Iterator[dict[str, str]]:
        [port] = free_ports(1)
        if arm.error_rate is None:
            console.print("Judge: [bold]a scripted stand-in[/bold], which ranks shadow answers.")
            command, name = ["-m", RULER, "--port", str(port)], RANKING_JUDGE
        else:
            console.print(
                f"Judge: [bold]a scripted reader[/bold] of what users write next, which errs in {arm.error_rate:.0%}."
            )
            reader = "examples.live.follow_ups.reader"
            command, name = ["-m", reader, "--port", str(port), "--error-rate", str(arm.error_rate)], READER
        with program(command, port, data):
            yield scripted(name, port)

    return run
