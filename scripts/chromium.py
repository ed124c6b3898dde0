"""The system's Chromium, headless, driven by Playwright.

Owns: finding the program, and its flags: it sends no requests of its own. Refuses: what is done with it.
"""

from __future__ import annotations

import shutil
from typing import Final

from playwright.async_api import Browser, Playwright

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Playwright adds --headless and --no-sandbox, and a new folder for everything that a browser keeps.
FLAGS: Final = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class NoBrowser(Exception):
    """No Chromium is installed."""


def find_program() -> str:
    """Return the path of the program. Raises NoBrowser."""
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    raise NoBrowser("no Chromium is on PATH: install it (Debian's package is `chromium`)")


async def start(playwright: Playwright) -> Browser:
    """Start a new browser. Raises NoBrowser."""
    return await playwright.chromium.launch(executable_path=find_program(), headless=True, args=FLAGS)
