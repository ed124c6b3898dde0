"""A canary beside the live version, by the runs that agents made on both.

Owns: reading the two sides' runs and saying by which figures the canary is shown worse. Refuses: the test
(`proxy.gate.comparison`), and moving anything (the controller does).
"""

from __future__ import annotations

from typing import Any

from proxy.gate.comparison import Comparison, Run, compare
from recorder.reading.compared import compared_runs
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.store.database import Store


async def beside_live(store: Store, alias: AliasView, canary: VersionView) -> Comparison:
    """Compare the canary's runs with the live version's since the canary began."""
    sides = [id_ for id_ in (canary.id, alias.live_version_id) if id_ is not None]
    found = await compared_runs(store, alias.project_id, sides, canary.state_at)
    runs = [
        Run(
            run.group_id,
            run.version_id == canary.id,
            reward=run.reward,
            ranked=run.ranked,
            errored=run.errored,
            tool_failures=run.tool_failures,
            answer_tokens=run.answer_tokens,
            call_s=run.call_s,
        )
        for run in found
    ]
    return compare(runs)


def figures(found: Comparison) -> dict[str, Any]:
    """What the row of a canary that is taken away says: by what, and what was seen of it."""
    worse = {str(name): found.doubts[name] for name in found.worse_by}
    return {"worse_by": sorted(worse)} | {
        name: {"value": doubt.mean, "tasks": doubt.samples, "capital": doubt.capital} for name, doubt in worse.items()
    }
