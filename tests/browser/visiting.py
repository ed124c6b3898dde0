"""A page in a browser that is watched: what goes wrong on it fails the test that looks at it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, ViewportSize

WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}  # a laptop's
NARROW: Final[ViewportSize] = {"width": 390, "height": 844}  # a telephone's
Scheme = Literal["light", "dark"]
LOOKS: Final[Sequence[tuple[ViewportSize, Scheme]]] = ((WIDE, "light"), (NARROW, "dark"))


@dataclass
class Watch:
    """What went wrong. `refusals`: answers of 4xx that the test asked for, which a browser's console repeats."""

    host: str
    refusals: set[int] = field(default_factory=set)
    troubles: list[str] = field(default_factory=list)

    def over(self, context: BrowserContext) -> None:
        """From now on, on all pages of the context."""
        context.on("console", self._on_console)
        context.on("weberror", lambda error: self.troubles.append(f"a script failed: {error.error}"))
        context.on("request", self._on_request)
        context.on("response", self._answered)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not self._is_refusal(message.text):
            self.troubles.append(f"the console says ({message.type}): {message.text}")

    def _is_refusal(self, text: str) -> bool:
        return any(text.startswith(f"Failed to load resource: the server responded with a status of {status}")
                   for status in self.refusals)  # fmt: skip

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != self.host:
            self.troubles.append(f"something went to another host: {request.url}")

    def _answered(self, response: Response) -> None:
        if response.status >= 500:
            self.troubles.append(f"{response.status} from {response.url}")


@dataclass
class Visitor:
    """Somebody with a browser, at one proxy's pages."""

    page: Page
    watch: Watch

    async def goto(self, path: str, status: int = 200) -> None:
        """Open a page, which answers with that status."""
        if status >= 400:
            self.watch.refusals.add(status)
        answer = await self.page.goto(path)
        assert answer is not None
        assert answer.status == status, f"{path}: {answer.status}"

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """One test's use of a tab that several share: it has no cookie, and nothing went wrong when the block ends."""
        await self.page.context.clear_cookies()
        try:
            yield
        finally:
            troubles = list(self.watch.troubles)
            self.watch.troubles.clear()
        assert not troubles, "\n".join(troubles)


@asynccontextmanager
async def visiting(browser: Browser, url: str, scheme: Scheme = "light", **more: Any) -> AsyncIterator[Visitor]:
    """A visitor without any cookie; when it leaves, nothing went wrong on any page."""
    context = await browser.new_context(base_url=url, color_scheme=scheme, **{"viewport": WIDE} | more)
    context.set_default_timeout(60_000)  # a bound for what hangs: the first chart of a process imports matplotlib
    watch = Watch(urlsplit(url).netloc)
    watch.over(context)
    try:
        yield Visitor(await context.new_page(), watch)
    finally:
        await context.close()
    assert not watch.troubles, "\n".join(watch.troubles)
