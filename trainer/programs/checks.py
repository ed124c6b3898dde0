"""What must be right before a version's gate can attempt held-out scenarios: the file, the agent, its success function.

Owns: looking, for every alias that has some. Refuses: attempting anything, and telling (`trainer.commands`).
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from proxy.settings.hone import HoneSettings
from recorder.findings import Finding, Verdict
from trainer.errors import AgentUnusable, ScenariosInvalid
from trainer.programs.attempting import start_agents
from trainer.programs.examiner import held_out


async def check(settings: HoneSettings) -> list[Finding]:
    """All that is looked at."""
    gated = [name for name, alias in settings.aliases.items() if alias.gate.scenarios is not None]
    return [await _of_alias(settings, name) for name in gated]


async def _of_alias(settings: HoneSettings, alias: str) -> Finding:
    what = f"gate of {alias}"
    try:
        attempting, tasks = held_out(settings, alias)
        async with AsyncExitStack() as stack:
            for started in await start_agents(attempting, settings.data, stack):
                await started.ready()
    except (AgentUnusable, ScenariosInvalid) as e:
        todo = f"Mend aliases.{alias}.gate: until then its versions pass by their answers alone."
        return Finding(what, Verdict.WRONG, f"{e}", todo)
    found = f"{attempting.agent} attempts {len(tasks)} held-out scenarios, {attempting.success} tells success."
    return Finding(what, Verdict.FINE, found)
