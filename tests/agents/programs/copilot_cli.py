"""GitHub's Copilot CLI, headless, with a provider of one's own."""

from __future__ import annotations

from desk import Run, main
from workplace import HINT, package, workplace


async def answer(run: Run) -> str:
    async with workplace(run) as place:
        said = await place.run_command(
            package("@github", "copilot-linux-*", "copilot"),
            *("--prompt", f"{run.question} {HINT}", "--allow-all-tools", "--silent", "--no-color"),
            *("--disable-builtin-mcps", "--no-custom-instructions", "--model", run.model),
            variables={
                "COPILOT_PROVIDER_BASE_URL": run.base_url,
                "COPILOT_PROVIDER_TYPE": "openai",
                "COPILOT_PROVIDER_API_KEY": run.api_key,
                "COPILOT_PROVIDER_WIRE_API": "responses" if "responses" in run.modes else "completions",
                "COPILOT_OFFLINE": "true",
                "COPILOT_AUTO_UPDATE": "false",
            },
        )
        return said.strip()


main(answer)
