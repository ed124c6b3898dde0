"""opencode, headless, with its provider for OpenAI-compatible servers."""

from __future__ import annotations

import json

from desk import Run, main
from workplace import HINT, package, workplace


def config(run: Run) -> str:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": run.base_url, "apiKey": run.api_key},
        "models": {run.model: {"limit": {"context": 100_000, "output": 4_096}}},
    }
    return json.dumps({"provider": {"hone": provider}, "autoupdate": False, "share": "disabled"})


async def answer(run: Run) -> str:
    async with workplace(run) as place:
        (place.work / "opencode.json").write_text(config(run))
        said = await place.run_command(
            package("opencode-linux-*", "bin", "opencode"),
            *("run", "--auto", "--format", "json", "--model", f"hone/{run.model}", f"{run.question} {HINT}"),
            variables={"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"},
        )
        events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        return str([event["part"]["text"] for event in events if event["type"] == "text"][-1]).strip()


main(answer)
