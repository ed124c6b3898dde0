"""A program that an example runs to its end: its exit status, and how it is stopped in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from examples.running import programs
from examples.running.programs import ROOT, new_run, run_to_its_end

# What a campaign does: told to stop, it takes longer than a moment to leave things in order.
CAMPAIGN = """
import signal, sys, time
from pathlib import Path
def stop(number, frame):
    signal.signal(number, signal.SIG_DFL)
    time.sleep(1)
    Path(sys.argv[1]).write_text(f"in order after {signal.Signals(number).name}")
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
Path(sys.argv[1]).write_text("began")
for _ in range(600):
    time.sleep(0.1)  # not 60 s at once: a signal just before a long sleep is answered after it
"""
EXAMPLE = """
import signal, sys
from examples.running.programs import run_to_its_end
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
try:
    run_to_its_end([sys.executable, "-c", sys.argv[1], sys.argv[2]], {})
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_a_program_s_exit_status_and_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_OUTSIDE", "3")
    asked = "import os; raise SystemExit(int(os.environ['FROM_OUTSIDE'] + os.environ['GIVEN']))"
    assert run_to_its_end([sys.executable, "-c", asked], {"GIVEN": "4"}) == 34


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_is_told_to_stop_has_its_campaign_end_in_order(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    told = tmp_path / "told"
    process = subprocess.Popen(
        [sys.executable, "-c", EXAMPLE, CAMPAIGN, str(told)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )  # fmt: skip
    try:
        while not told.exists() or told.read_text() != "began":
            assert process.poll() is None
        process.send_signal(number)
        assert process.wait(30) == status
    finally:
        process.kill()
    assert told.read_text() == f"in order after {number.name}"


def test_a_program_that_does_not_stop_in_time_is_killed_and_the_reason_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "ENDING_TIMEOUT_S", 0.1)
    deaf = (
        "import os, signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); os.kill(os.getppid(), signal.SIGINT); "
    )
    started: list[subprocess.Popen[bytes]] = []

    class Kept(subprocess.Popen[bytes]):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Kept)
    with pytest.raises(KeyboardInterrupt):
        run_to_its_end([sys.executable, "-c", deaf + "time.sleep(60)"], {})
    assert [one.poll() for one in started] == [-signal.SIGKILL]


def test_runs_that_begin_at_once_have_folders_of_their_own(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def begin() -> Path:
        together.wait()
        return new_run(tmp_path / "runs")

    with ThreadPoolExecutor(8) as threads:
        made = {one.result() for one in [threads.submit(begin) for _ in range(8)]}
    assert {path.name for path in made} == set("12345678")
    assert all(path.is_dir() for path in made)
