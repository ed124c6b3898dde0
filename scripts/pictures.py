"""Pictures of the pages for docs/start.md and docs/pages.md, drawn from the data of a finished demo.

    python -m scripts.pictures [--data FOLDER]

Owns: which pages are drawn, their size, and compressing them. Refuses: what the pages show. The folder stays unchanged:
`hone serve` uses a copy of its store.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
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

from examples.running.programs import free_ports
from scripts import chromium

ROOT: Final = Path(__file__).resolve().parents[1]
DEMO: Final = ROOT / "examples" / "helpdesk" / "hone.toml"
WIDTH, HEIGHT, COLOURS = 1280, 960, 128
MOST_BYTES: Final = 300_000
STARTS_S: Final = 60.0
# Prefer a group that was trained on (a demo that keeps the base as its best version has none), then the group with the
# most different rewards. Of its attempts, take the one with the most calls.
_EXAMPLE: Final = """
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
    data = (parser.parse_args().data or newest(ROOT / ".hone" / "demo")).absolute()
    with served(data) as (url, store):
        asyncio.run(draw(url, pages(store)))


def newest(runs: Path) -> Path:
    """Return the data folder of the newest demo. Exits if there is none."""
    stores = sorted(runs.glob("*/hone.db"), key=lambda path: path.stat().st_mtime)
    if not stores:
        sys.exit(f"{runs} has no data of a demo: run `make demo`, or name a folder with --data")
    return stores[-1].parent


def pages(store: Path) -> dict[str, str]:
    """Return the page's path for each picture."""
    with closing(sqlite3.connect(store)) as db:
        chosen = db.execute(_EXAMPLE).fetchone()
    if chosen is None:
        sys.exit(f"nothing has a reward in {store}: let the demo run to its end")
    return {
        "group": f"/hone/groups/{chosen[0]}",
        "run": f"/hone/trajectories/{chosen[1]}",
        "versions": "/hone/versions",
    }


@contextmanager
def served(data: Path) -> Iterator[tuple[str, Path]]:
    """Run `hone serve` on a copy of a store; yield its URL and the copy."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "hone.db"
        with closing(sqlite3.connect(f"{(data / 'hone.db').as_uri()}?mode=ro", uri=True)) as db:
            db.execute("VACUUM INTO ?", (str(store),))
        [port] = free_ports(1)
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "proxy.cli", "serve", "--data", folder, "--config", str(DEMO)]
        serving = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"HONE_PROXY__PORT": str(port)})
        try:
            _wait_for(url, serving)
            yield url, store
        finally:
            serving.terminate()
            serving.wait(STARTS_S)


async def draw(url: str, paths: dict[str, str]) -> None:
    """Draw each page into docs/<name>.png."""
    async with async_playwright() as playwright:
        browser = await chromium.start(playwright)
        for name, path in paths.items():
            picture = small(await _drawn(browser, url + path))
            (ROOT / "docs" / f"{name}.png").write_bytes(picture)
            print(f"docs/{name}.png: {len(picture) / 1000:.0f} kB, {path}")  # noqa: T201 - the script's output


def small(picture: bytes) -> bytes:
    """Return the picture with fewer colours. Exits if it is still too large."""
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
