"""Run `hone train` with an example's settings as a real program, and read its `hone report`.

Owns: starting the two commands with an environment, and naming the logs if one fails. Refuses: reading the store
(the report has the data), and the figures (`summary`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples.running.programs import ROOT, run_to_its_end

FINISHED: Final = 0
PAUSED: Final = 3  # `hone train`'s exit status when a health rule paused the campaign

Report = dict[str, Any]


class CampaignFailed(Exception):
    """`hone train` or another command of Hone failed."""


@dataclass(frozen=True, slots=True)
class Project:
    """An example's settings file, its data folder, and the variables that name the programs around Hone."""

    config: Path
    data: Path
    environment: Mapping[str, str]

    def train(self, *arguments: str) -> int:
        """Run `hone train`; return its exit status, which is `FINISHED` or `PAUSED`.

        Raises:
            CampaignFailed: it ended with another status.
        """
        status = run_to_its_end(self._command("train", *arguments), self.environment)
        if status not in (FINISHED, PAUSED):
            raise CampaignFailed(f"hone train ended with exit status {status}; its logs are in {self.data}")
        return status

    def read(self, *arguments: str) -> Any:
        """Return the output of a command of Hone with `--json`.

        Raises:
            CampaignFailed: it failed, or printed no JSON.
        """
        ran = subprocess.run(self._command(*arguments, "--json"), **self._in(), check=False, capture_output=True)
        try:
            if ran.returncode == 0:
                return json.loads(ran.stdout)
        except ValueError:
            pass
        why = (ran.stderr or ran.stdout).decode(errors="replace").strip()[-500:]
        raise CampaignFailed(f"hone {' '.join(arguments)}: exit status {ran.returncode}: {why}")

    def report(self) -> Report:
        """Return `hone report` of the data folder's newest campaign."""
        report: Report = self.read("report")
        return report

    def _command(self, command: str, *arguments: str) -> list[str]:
        given = ["--config", str(self.config), "--data", str(self.data)]
        return [sys.executable, "-m", "proxy.cli", command, *arguments, *given]

    def _in(self) -> dict[str, Any]:
        return {"env": {**os.environ, **self.environment}, "cwd": ROOT}
