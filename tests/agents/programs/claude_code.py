"""Claude Code, headless."""

from __future__ import annotations

import json

from desk import Run, main
from workplace import HINT, package, workplace


async def answer(run: Run) -> str:
    async with workplace(run) as place:
        claude = package("@anthropic-ai", "claude-code-linux-*", "claude")
        unattended = ("--print", "--output-format", "json", "--allowed-tools", "Bash", "--model", run.model)
        said = await place.run_command(
            claude,
            *unattended,
            "--",
            f"{run.question} {HINT}",
            variables={
                "ANTHROPIC_BASE_URL": run.root_url(),
                "ANTHROPIC_API_KEY": run.api_key,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            },
        )
        return str(json.loads(said)["result"])


main(answer)
