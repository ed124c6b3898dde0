"""The long run as one command, in as many parts as it takes.

    python -m examples.rlvr.long_run.run [--minutes 100] [--seed 7] [--out FOLDER] [--steps 400] [--every 20]
        [--held-out 200]

Owns: the programs (`hone up`, a judge, one `hone train` for each phase), the opening traffic from which the drift set
is drawn, the end after `--minutes`, and writing points.json after each measurement. The same command goes on where the
last one ended, also after a kill. Refuses: measuring (Hone's own validations do), and the verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from examples.rlvr.agent import run as ask
from examples.rlvr.long_run.phases import EVERY, HELD_OUT, STEPS, Phase, Prompts, plan_phases, write_prompts
from examples.rlvr.long_run.points import LongRunRecord, OtherRun, open_record, write_record
from examples.rlvr.long_run.reading import PhaseNews, read_phase
from examples.rlvr.long_run.summary import tell_end, tell_point
from examples.rlvr.scripted_judge import NAME as SCRIPTED_JUDGE
from examples.running.campaign import CampaignFailed
from examples.running.command import ExampleRun, interrupted, settings
from examples.running.judges import judging
from examples.running.programs import ROOT, free_ports, hone_program, hone_up
from proxy.errors import ConfigError
from proxy.settings.loader import load_settings
from recorder.settings import RecorderSettings

CONFIG: Final = Path(__file__).with_name("hone.toml")
DATA: Final = ROOT / "build" / "long_run"
ALIAS: Final = "rlvr"
MINUTES: Final = 100.0
LOOK_S: Final = 10.0  # between two looks at the store for a new measurement
AT_ONCE: Final = 32  # prompts of the opening
MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class OpeningPrompt:
    """A user's question, as the example's agent takes it."""

    input: str
    base_url: str
    api_key: str = "none"
    model: str = ALIAS


class LongRun:
    """One part of the run: from where the data folder is, to the end of the phases or of its time."""

    def __init__(self, data: Path, record: LongRunRecord, minutes: float, environment: Mapping[str, str]) -> None:
        self._data = data
        self._record = record
        self._environment = environment
        self._recording: RecorderSettings = load_settings(CONFIG, {}).settings.recorder
        self._began = time.monotonic()
        self._seconds = minutes * MINUTE_S
        record.minutes.append(0.0)

    def run(self, prompts: Prompts) -> bool:
        """Run phases until all are over, or until the time is. Return whether all are over.

        Raises:
            CampaignFailed: `hone train` ended with an error, or a health rule paused it.
            RuntimeError: `hone up` did not become ready.
        """
        console = Console(highlight=False)
        options = ["--no-learn", "--config", str(CONFIG), "--data", str(self._data)]
        with hone_up(options, self._environment, self._data, console):
            if not self._record.opened:
                self._open(prompts.opening)
            for phase in self._record.phases:
                if not self._look(phase).over and not self._train(phase, prompts):
                    return False
        return True

    def _open(self, opening: Sequence[str]) -> None:
        """Ask the opening prompts as users do, and wait until their trajectories are completed.

        No campaign trains on them, so the drift set of the first step is drawn mostly from them: of all three forms.
        """
        url = f"http://127.0.0.1:{self._environment['HONE_PROXY__PORT']}/v1"
        asyncio.run(_ask_all([OpeningPrompt(prompt, url) for prompt in opening]))
        time.sleep(self._recording.answered_idle_s + LOOK_S)
        self._record.opened = True
        self._write()

    def _train(self, phase: Phase, prompts: Prompts) -> bool:
        """Run a phase's campaign, or go on with it. Return whether it is over; if not, the time is."""
        options = ["--config", str(CONFIG), "--data", str(self._data)]
        environment = {**self._environment, **phase_environment(phase, self._record.every, prompts)}
        log = self._data / "logs" / f"{phase.name}.log"
        print(f"Phase {phase.name}: steps {phase.first + 1} to {phase.last}", flush=True)
        with hone_program(["train", *options], environment, log) as train, _printed(train):
            while train.poll() is None and not self._is_late:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    train.wait(LOOK_S)
                self._look(phase)
        if self._look(phase).over:
            return True
        if self._is_late:
            return False
        last = "\n".join(log.read_text("utf-8", "replace").splitlines()[-5:])
        raise CampaignFailed(
            f"phase {phase.name}: hone train ended with status {train.returncode}. The end of {log}:\n{last}"
        )

    def _look(self, phase: Phase) -> PhaseNews:
        """Write what the phase's campaign has measured since the last look."""
        news = asyncio.run(read_phase(self._data, self._recording, phase, self._record.is_known))
        known = {(one.step, one.rule) for one in self._record.alarms}
        self._record.alarms += [one for one in news.alarms if (one.step, one.rule) not in known]
        for point in news.points:
            self._record.add(point)
            print(tell_point(point), flush=True)
        self._write()
        return news

    def _write(self) -> None:
        self._record.minutes[-1] = round((time.monotonic() - self._began) / MINUTE_S, 1)
        write_record(self._data, self._record)

    @property
    def _is_late(self) -> bool:
        return time.monotonic() - self._began >= self._seconds


def phase_environment(phase: Phase, every: int, prompts: Prompts) -> dict[str, str]:
    """Return the settings of a phase's campaign."""
    return {
        "HONE_CAMPAIGN__NAME": phase.name,
        "HONE_CAMPAIGN__SCENARIOS": str(prompts.learn[phase.form]),
        "HONE_CAMPAIGN__VAL_SCENARIOS": str(prompts.held_out),
        "HONE_CAMPAIGN__STEPS": str(phase.steps),
        "HONE_CAMPAIGN__VAL_EVERY": str(every),
        "HONE_TRAINER__SCHEDULE_STEPS": str(phase.steps),
    }


async def _ask_all(opening: Sequence[OpeningPrompt]) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(prompt: OpeningPrompt) -> None:
        async with limit:
            await ask(prompt)

    await asyncio.gather(*map(one, opening))


@contextlib.contextmanager
def _printed(program: subprocess.Popen[str]) -> Iterator[None]:
    """Print what a program prints, until the block ends; a full pipe would stop the program."""
    stdout = program.stdout
    assert stdout is not None

    def copy() -> None:
        with contextlib.suppress(ValueError):  # the pipe was closed
            for line in stdout:
                print(line, end="", flush=True)

    thread = threading.Thread(target=copy, name="output of hone train", daemon=True)
    thread.start()
    yield


def run(data: Path, wanted: LongRunRecord, minutes: float) -> LongRunRecord:
    """Run one part; return all that is measured so far.

    Raises:
        OtherRun: the data folder has another run.
        CampaignFailed, RuntimeError: as `LongRun.run`.
    """
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    record = open_record(data, wanted)
    prompts = write_prompts(data / "tasks", record.seed, held_out=record.held_out)
    record.judge_port = record.judge_port or free_ports(1)[0]
    with judging(CONFIG, data, "examples.rlvr.scripted_judge", SCRIPTED_JUDGE, port=record.judge_port) as judge:
        environment = {**settings(ExampleRun(data, record.seed, short=False)), **judge}
        over = LongRun(data, record, minutes, environment).run(prompts)
    tell_end(record, data, over=over)
    return record


def main() -> int:
    """Run one part. The exit status: 0 when its time or the run is over; 1 for a fault; 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description="400 steps over three forms in turn; the same command goes on.")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"minutes of this part ({MINUTES:g})")
    parser.add_argument("--seed", type=int, default=7, help="seed of the prompts and campaigns (7)")
    parser.add_argument("--out", type=Path, default=DATA, help="data folder (build/long_run)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"steps of all phases ({STEPS})")
    parser.add_argument("--every", type=int, default=EVERY, help=f"steps between measurements ({EVERY})")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help=f"held-out prompts of a form ({HELD_OUT})")
    given = parser.parse_args()
    # so that the started programs are stopped too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    data = given.out.resolve()
    try:
        phases = list(plan_phases(given.steps, given.every))
        wanted = LongRunRecord(
            seed=given.seed,
            every=given.every,
            held_out=given.held_out,
            phases=phases,
            rehearsal=load_settings(CONFIG, {}).settings.trainer.rehearsal,
        )
        run(data, wanted, given.minutes)
    except (CampaignFailed, ConfigError, OtherRun, RuntimeError, ValueError) as error:
        print(f"long run: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return interrupted(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
