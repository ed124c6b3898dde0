"""Pictures of the pages for docs/start.md and docs/pages.md, drawn from what a run of the demo left.

    python -m scripts.pictures [--data FOLDER]

Owns: which pages are drawn, how large, and how they are made small. Refuses: what the pages show. The folder is not
touched: `hone serve` runs over a copy of its store.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import httpx
from PIL import Image
from playwright.async_api import Browser, async_playwright

from scripts import chromium

ROOT: Final = Path(__file__).resolve().parents[1]
DEMO: Final = ROOT / "examples" / "helpdesk" / "hone.toml"
WIDTH, HEIGHT, COLOURS = 1280, 960, 128
MOST_BYTES: Final = 300_000
STARTS_S: Final = 60.0
# A group that was trained on, where there is one: a run whose best version is the base leaves none. Of these the one
# whose attempts earned the most different rewards, and of its attempts the one with the most calls.
_TELLING: Final = """
    SELECT g.id, run.trajectory_id FROM groups g
    JOIN score_parts run ON run.score_id = g.current_score_id AND run.part = 'reward'
    ORDER BY g.state = 'trained' DESC, (
        SELECT count(DISTINCT value) FROM score_parts p WHERE p.score_id = g.current_score_id AND p.part = 'reward'
    ) DESC, g.id, (SELECT count(*) FROM calls c WHERE c.trajectory_id = run.trajectory_id) DESC, run.value DESC
    LIMIT 1
"""


def main() -> None:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description="Draw docs/*.png from the pages over a demo's data folder.")
    parser.add_argument("--data", type=Path, help="the demo's folder (the newest in .hone/demo)")
    data = parser.parse_args().data or newest(ROOT / ".hone" / "demo")
    with served(data) as (url, store):
        asyncio.run(draw(url, pages(store)))


def newest(runs: Path) -> Path:
    """The folder of the demo's newest run. Exits where there is none."""
    found = sorted(runs.glob("*/hone.db"), key=lambda path: path.stat().st_mtime)
    if not found:
        sys.exit(f"no run of the demo lies in {runs}: `make demo` makes one, or name a folder by --data")
    return found[-1].parent


def pages(store: Path) -> dict[str, str]:
    """Picture → the path of the page that it shows."""
    with closing(sqlite3.connect(store)) as db:
        found = db.execute(_TELLING).fetchone()
    if found is None:
        sys.exit(f"nothing has a reward in {store}: let the demo run to its end")
    return {"group": f"/hone/groups/{found[0]}", "run": f"/hone/trajectories/{found[1]}", "versions": "/hone/versions"}


@contextmanager
def served(data: Path) -> Iterator[tuple[str, Path]]:
    """`hone serve` over a copy of a store: its address, and the copy."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "hone.db"
        with closing(sqlite3.connect(f"{(data / 'hone.db').as_uri()}?mode=ro", uri=True)) as db:
            db.execute("VACUUM INTO ?", (str(store),))
        url = f"http://127.0.0.1:{(port := _free_port())}"
        command = [sys.executable, "-m", "proxy.cli", "serve", "--data", folder, "--config", str(DEMO)]
        serving = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"HONE_PROXY__PORT": str(port)})
        try:
            _wait_for(url, serving)
            yield url, store
        finally:
            serving.terminate()
            serving.wait(STARTS_S)


async def draw(url: str, shown: dict[str, str]) -> None:
    """Draw pages, each into docs/<name>.png."""
    async with async_playwright() as playwright:
        browser = await chromium.start(playwright)
        for name, path in shown.items():
            picture = small(await _drawn(browser, url + path))
            (ROOT / "docs" / f"{name}.png").write_bytes(picture)
            print(f"docs/{name}.png: {len(picture) / 1000:.0f} kB, {path}")  # noqa: T201 - what a person is told


def small(picture: bytes) -> bytes:
    """The same picture in few colours. Exits where it is still large."""
    out = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
        out, "PNG", optimize=True
    )
    if len(out.getvalue()) > MOST_BYTES:
        sys.exit(f"a picture has {len(out.getvalue())} bytes, more than {MOST_BYTES}: draw less of its page")
    return out.getvalue()


async def _drawn(browser: Browser, url: str) -> bytes:
    page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    answer = await page.goto(url, wait_until="load")
    if answer is None or not answer.ok:
        sys.exit(f"{url} cannot be drawn: {answer.status if answer else 'no answer'}")
    picture = await page.screenshot(type="png")
    await page.close()
    return picture


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str, serving: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + STARTS_S
    while time.monotonic() < deadline and serving.poll() is None:
        try:
            httpx.get(f"{url}/healthz").raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return
    sys.exit(f"hone serve did not come up within {STARTS_S:.0f} s (status {serving.poll()})")


if __name__ == "__main__":
    main()
