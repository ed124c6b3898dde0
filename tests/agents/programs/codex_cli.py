"""Codex CLI, which speaks Responses alone and always streams."""

from __future__ import annotations

import json

from desk import Run, main
from workplace import HINT, package, workplace

CONFIG = """\
model = {model}
model_provider = "hone"
check_for_update_on_startup = false
analytics.enabled = false

[model_providers.hone]
name = "hone"
base_url = {base_url}
wire_api = "responses"
env_key = "HONE_API_KEY"
"""


async def answer(run: Run) -> str:
    async with workplace(run) as place:
        home = place.home / ".codex"
        home.mkdir()
        (home / "config.toml").write_text(CONFIG.format(model=json.dumps(run.model), base_url=json.dumps(run.base_url)))
        last = place.home / "last"
        codex = package("@openai", "codex-linux-*", "vendor", "*", "bin", "codex")
        unattended = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--output-last-message")
        await place.run_command(
            codex, "exec", *unattended, str(last), f"{run.question} {HINT}", variables={"HONE_API_KEY": run.api_key}
        )
        return last.read_text()


main(answer)
