"""What judge and learner say of themselves: their own checks, run by `hone judge --check` in a process of its own.

Owns: asking that process. Refuses: the checks (`judge.scoring.checks`, `trainer.programs.checks`): the proxy imports
nothing of theirs.
"""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence

from recorder.findings import Finding, Verdict, from_json

LIMIT_S = 90.0  # importing a user's functions may take a minute (judge.function_start_s)


async def says(stage: str, command: Sequence[str], env: Mapping[str, str]) -> list[Finding]:
    """What `command` (`hone judge --check --json` with this Hone's settings, or the learner's) prints."""
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, env={**os.environ, **env})
    try:
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate()
    except TimeoutError:
        return [Finding(stage, Verdict.WRONG, f"its checks took longer than {LIMIT_S:.0f} s.")]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return [from_json(one) for one in json.loads(out)]
    except (ValueError, KeyError, TypeError):
        said = (err or out).decode(errors="replace").strip().splitlines()
        return [Finding(stage, Verdict.WRONG, f"it cannot check itself: {said[-1] if said else 'it said nothing'}")]
