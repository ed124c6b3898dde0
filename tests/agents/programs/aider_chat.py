"""aider, headless, asked about files: it has no tools, and adds to the chat what the model names. Modes: stream."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from desk import Run, main
from workplace import Workplace, workplace

HINT = "Name the file that you need: orders/ORDER.json has an order, parcels/TRACKING.json a parcel."
FILES = {"orders": ("find_order", "order_id"), "parcels": ("track_parcel", "tracking")}
UNATTENDED = (
    *("--yes-always", "--chat-mode", "ask", "--no-pretty", "--no-gitignore", "--analytics-disable"),
    *("--no-check-update", "--no-show-release-notes", "--no-show-model-warnings", "--no-detect-urls"),
)


async def write_files(run: Run, place: Workplace) -> None:
    for order in run.orders:
        if order["order_id"] == run.order_id:
            found = {"status": order["status"], "tracking": order["tracking"]}
            for name, content in (
                (f"orders/{order['order_id']}.json", found),
                (f"parcels/{order['tracking']}.json", {"arrives": order["day"]}),
            ):
                file = place.work / name
                file.parent.mkdir(exist_ok=True)
                file.write_text(json.dumps(content))
    await place.run_command("git", "init", "--quiet")
    await place.run_command("git", "add", ".")
    me = ("-c", "user.name=desk", "-c", "user.email=desk@localhost")
    await place.run_command("git", *me, "commit", "--quiet", "--message", "orders")


async def answer(run: Run) -> str:
    async with workplace(run) as place:
        await write_files(run, place)
        said = await place.run_command(
            str(Path(sys.executable).parent / "aider"),
            *(*UNATTENDED, "--stream" if "stream" in run.modes else "--no-stream"),
            *("--model", f"openai/{run.model}", "--message", f"{run.question} {HINT}"),
            variables={"OPENAI_API_BASE": run.base_url, "OPENAI_API_KEY": run.api_key},
        )
        for folder, name in re.findall(r"^(orders|parcels)/(\w+)\.json$", said, re.MULTILINE):
            tool, argument = FILES[folder]
            run.call(tool, {argument: name})
        return re.findall(r"^Your order .*$", said, re.MULTILINE)[-1].strip()


main(answer)
