"""What golden files show: the commands that read, the routes of `/hone/v1` that read, and the pages, on fixed stores.

Owns: the tables of what is asked, and the form in which an answer is kept. Refuses: making the stores.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from tests.browser import pages
from tests.browser.rich import Rich
from tests.browser.served import supervised
from tests.golden.stores import Stores
from tests.judge import judge_server
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.hone_command import hone
from tests.proxy.running import Proxy, serving

# Commands on the rich store. Each is asked for text and, where it succeeds, for JSON too.
COMMANDS: Final[Sequence[str]] = (
    "status",
    "trajectories --limit 12",
    "trajectories --sort tokens --limit 3",
    "trajectories --search depot --limit 3",
    "trajectories --state abandoned",
    "trajectories --dataset hard-cases",
    "datasets list",
    "groups",
    "groups --state unscored",
    "show {run}",
    "show {open_run}",
    "show {preferred}",
    "show {call}",
    "show {group}",
    "show refund-1",
    "show refund-2",
    "compare {group}",
    "compare {group} --judge",
    "versions",
    "versions --moves",
    "ledger",
    "ledger --counts",
    "review --json",
    "keys list",
    "notify list",
    "config",
    "config judge.feedback",
    "db check",
)
# Those whose JSON is a route's, too long to be read as a difference, or in the order in which work ended.
TEXT_ALONE: Final = frozenset({
    "show {group}", "show {preferred}", "show {open_run}", "show refund-1", "config", "score --all --dry-run",
})  # fmt: skip
# The same on the store of a campaign's story, and on one where nothing was recorded.
OF_CAMPAIGN: Final[Sequence[str]] = ("report", "status", "groups", "ledger")
ON_EMPTY: Final[Sequence[str]] = ("status", "trajectories", "groups", "versions", "ledger", "review --json")
# What is refused and changes nothing: one file for each face, since each says a line or two.
REFUSED: Final[Sequence[str]] = (
    "shwo",
    "close",
    "close one --all",
    "close nothing",
    "show nothing",
    "compare nothing",
    "compare {group} --left nobody",
    "review",
    "review --group nothing --json",
    "review --group {group} --against base --json",
    "review --against helpdesk@2 --json",
    "review --against helpdesk@9 --json",
    "review --against base --json",
    "versions nobody",
    "promote helpdesk@99",
    "promote helpdesk@3",
    "canary helpdesk@3 10",
    "rollback nobody",
    "rollback support",
    "delete nothing --yes",
    "delete {open_run} --yes",
    "keys revoke nobody",
    "keys rotate nobody",
    "keys create ci --scope root",
    "trajectories --since tomorrow",
    "trajectories --reward-from much",
    "groups --state lost",
    "ledger --since tomorrow",
    "export --trajectory nothing",
    "report nothing",
    "score",
    "score nothing",
    "score refund-1",
    "config judge.modle",
    "config xyz",
    "dpo",
)
REFUSED_ROUTES: Final[Sequence[str]] = (
    "/trajectories/nothing",
    "/trajectories?since=tomorrow",
    "/trajectories?state=lost",
    "/traffic?range=2h",
    "/trajectories?limit=0",
    "/calls/nothing",
    "/groups/nothing",
    "/groups/{group}/comparison?left=nobody",
    "/review?alias=nobody",
    "/review?against=helpdesk@9",
    "/review?against=helpdesk@2",
    "/review?against=base",
    "/versions?alias=nobody",
    "/versions/helpdesk@99",
    "/campaigns/nothing/report",
    "/programs/nothing/log",
    "/nothing",
)
REFUSED_PAGES: Final[Sequence[str]] = (
    "/trajectories/nothing",
    "/trajectories?since=tomorrow",
    "/trajectories/{run}/calls/nothing",
    "/trajectories/{open_run}/delete",
    "/groups/nothing",
    "/groups/{group}?left=nobody",
    "/versions/helpdesk@9",
    "/versions/move?do=promote&version=helpdesk@3",
    "/versions/move?do=rollback&alias=support",
    "/review?group=nothing",
    "/campaigns/nothing",
    "/programs/nothing",
    "/nothing",
)
# What judges by a judge model: every group, so that a reply is shown too.
SCORED: Final[Sequence[str]] = ("score {group} --debug", "score refund-4", "score --all --dry-run", "score now-1")

# What reads rows with a base, the demo's model, whose tokens nothing here was recorded with. Each is a process of its
# own: it takes signals, which only a main thread may.
OF_BASE: Final[Sequence[str]] = ("dpo --alias helpdesk --dry-run",)

ROUTES: Final[Sequence[str]] = (
    "/trajectories?limit=6",
    "/trajectories?search=depot&limit=3",
    "/trajectories/{run}",
    "/calls/{call}",
    "/datasets",
    "/filters",
    "/groups?limit=10",
    "/groups/refund-5",
    "/groups/{group}/comparison",
    "/groups/{group}/judging",
    "/review?alias=helpdesk",
    "/status",
    "/judge",
    "/tools",
    "/keys",
    "/aliases",
    "/versions",
    "/versions/moves",
    "/versions/{canary}",
    "/versions/helpdesk@3",
    "/steps",
    "/training",
    "/campaigns/{campaign}/report",
    "/programs",
    "/programs/proxy/log",
)

_ROOT: Final = Path(__file__).resolve().parents[2]
_MODEL: Final = _ROOT / "examples" / "helpdesk" / "model"
_SETTINGS: Final = """
[aliases.helpdesk]
base_model = "base-model"
[engine]
urls = ["http://127.0.0.1:8000"]
"""
_JUDGE: Final = """
[judge]
model = "openai/judge"
api_base = "{url}"
[[judge.rewards]]
kind = "ruler"
weight = 0.8
[[judge.rewards]]
kind = "rule"
name = "short"
rule = "max_turns"
value = 2
effect = "penalty"
weight = 0.2
"""


_VARYING: Final = (
    (r"\b([a-z]+)_[0-9a-z]{18}(\d{8})\b", r"\1_\2"),  # the time in an id
    (r"(\"latency_s\": |rewarded, [\d.]+ to [\d.]+, )[\d.e-]+", r"\g<1>0.0"),  # by the clock that goes on
    (r"(\"(?:recipe|judge)_hash\": )\"[0-9a-f]{32}\"", r'\1"…"'),  # the judge's port is in it
)
_LONG: Final = 400  # characters of one text, above which the rest is counted only


class Masks:
    """Replaces what another machine or another run would have otherwise: addresses, folders, the times in ids."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def add(self, text: str, shown: str) -> None:
        """Show `text` as `shown`."""
        self._known[text] = shown

    def mask(self, text: str) -> str:
        """The text with all of them replaced."""
        for known in sorted(self._known, key=len, reverse=True):
            text = text.replace(known, self._known[known])
        for pattern, shown in _VARYING:
            text = re.sub(pattern, shown, text)
        return text


async def write_all(stores: Stores, here: Path, to: Path) -> None:
    """Every golden file below `to`; `here`: an empty folder to work in."""
    masks = Masks()
    for data, name in ((stores.rich.data, "rich"), (stores.campaign, "campaign"), (stores.empty, "empty")):
        masks.add(str(data), f"DATA/{name}")
    settings = here / "hone.toml"
    settings.write_text(_SETTINGS)
    masks.add(str(settings), "hone.toml")
    for name, data, commands in (
        ("commands", stores.rich.data, COMMANDS),
        ("commands-campaign", stores.campaign, OF_CAMPAIGN),
        ("commands-empty", stores.empty, ON_EMPTY),
    ):
        with_json = data != stores.empty
        await _commands(commands, data, settings, to / name, stores.rich, masks, with_json=with_json)
    await _refused(stores.rich.data, settings, to / "commands", stores.rich, masks)
    async with judge_server.serve() as judge:
        judge.behave(judge_server.verdicts(lambda document: 0.5))
        masks.add(judge.url, "http://JUDGE/v1")
        settings.write_text(_SETTINGS + _JUDGE.format(url=judge.url))
        await _commands(SCORED, stores.rich.data, settings, to / "commands", stores.rich, masks)
    settings.write_text(_SETTINGS.replace("[engine]\n", f'[engine]\nbase = "{_MODEL}"\n'))
    for command in OF_BASE:
        code, out, err = await _run_alone(command, stores.rich.data, settings)
        keep(to / "commands" / f"{named(command)}.txt", masks.mask(_printed(command, code, out, err)))
    await _report(stores.campaign, settings, here, to, masks)
    for name, data, routes, opened in (
        ("", stores.rich.data, ROUTES, pages.everywhere()),
        (
            "-empty",
            stores.empty,
            (),
            [where for where in pages.everywhere() if where.path in pages.whole() and not where.shows],
        ),
    ):
        async with _served(data, masks) as proxy:
            await _views(routes, proxy, to / f"views{name}", stores.rich, masks)
            await _pages(opened, proxy, to / f"pages{name}", stores.rich, masks)
            if routes:
                await _not_there(proxy, to, stores.rich, masks)


@asynccontextmanager
async def _served(data: Path, masks: Masks) -> AsyncIterator[Proxy]:
    store = await open_store(data, RecorderSettings(), migrate=True)
    try:
        with supervised(data) as programs:
            async with FakeEngine() as engine, serving(store, engine, programs=programs) as proxy:
                masks.add(engine.url, "http://ENGINE")
                masks.add(proxy.url, "http://PROXY")
                masks.add(proxy.url.removeprefix("http://"), "PROXY")
                yield proxy
    finally:
        await store.close()


async def _commands(
    commands: Sequence[str], data: Path, file: Path, to: Path, rich: Rich, masks: Masks, *, with_json: bool = True
) -> None:
    for command in commands:
        words, code = shlex.split(command.format(**vars(rich))), 0
        for form in ((), ("--json",)):
            if form and ({"--debug", "--json"} & {*words} or code or command in TEXT_ALONE or not with_json):
                continue
            code, out, err = await asyncio.to_thread(hone, *words, *form, "--config", str(file), "--data", str(data))
            said = _as_json(out) if "--json" in [*words, *form] and out else out
            text = _printed(f"{command}{''.join(f' {word}' for word in form)}", code, said, err)
            keep(to / f"{named(command)}{'.json' if form else ''}.txt", masks.mask(text))


async def _run_alone(command: str, data: Path, file: Path) -> tuple[int, str, str]:
    words = (*shlex.split(command), "--config", str(file), "--data", str(data))
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy.cli", *words, stdout=pipe, stderr=pipe,
        env=os.environ | {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    out, err = await child.communicate()
    return child.returncode or 0, out.decode(), err.decode()


def _printed(command: str, code: int, out: str, err: str) -> str:
    return f"$ hone {command}\n{out}{err}" + (f"[exit status {code}]\n" if code else "")


async def _refused(data: Path, file: Path, to: Path, rich: Rich, masks: Masks) -> None:
    texts, taken = list[str](), list[str]()
    for command in REFUSED:
        words = shlex.split(command.format(**vars(rich)))
        # the command's own name comes first, so that a wrong one is met as it stands
        given = () if words[0] == "shwo" else ("--config", str(file), "--data", str(data))
        code, out, err = await asyncio.to_thread(hone, *words, *given)
        taken += [] if code else [command]
        texts.append(_printed(command, code, out, err))
    assert not taken, f"these were not refused: {taken}"
    keep(to / "refused.txt", masks.mask("\n".join(texts)))


async def _report(data: Path, settings: Path, here: Path, to: Path, masks: Masks) -> None:
    page = here / "report.html"
    given = ("--html", str(page), "--config", str(settings), "--data", str(data))
    code, _, err = await asyncio.to_thread(hone, "report", "orders", *given)
    assert code == 0, err
    keep(to / "commands-campaign" / "report.html.txt", masks.mask(seen(page.read_text("utf-8"))))


async def _views(routes: Sequence[str], proxy: Proxy, to: Path, rich: Rich, masks: Masks) -> None:
    for route in routes:
        answer = await proxy.http.get(f"/hone/v1{route.format(**vars(rich))}")
        text = f"GET /hone/v1{route}\n{answer.status_code}\n{_as_json(answer.text)}"
        keep(to / f"{named(route)}.txt", masks.mask(text))


async def _pages(opened: Sequence[pages.Where], proxy: Proxy, to: Path, rich: Rich, masks: Masks) -> None:
    for where in opened:
        answer = await proxy.http.get(f"/hone{where.on(rich)}")
        markup = answer.text if where.path == "/" else main_part(answer.text)
        keep(to / f"{named(str(where))}.txt", masks.mask(f"{answer.status_code} {where}\n{seen(markup)}"))


async def _not_there(proxy: Proxy, to: Path, rich: Rich, masks: Masks) -> None:
    """What routes and pages say that refuse."""
    for folder, start, asked in (("views", "/hone/v1", REFUSED_ROUTES), ("pages", "/hone", REFUSED_PAGES)):
        texts = []
        for path in asked:
            answer = await proxy.http.get(f"{start}{path.format(**vars(rich))}")
            said = _as_json(answer.text) if folder == "views" else seen(main_part(answer.text))
            texts.append(f"GET {start}{path}\n{answer.status_code}\n{said}")
        keep(to / folder / "refused.txt", masks.mask("\n".join(texts)))


def keep(file: Path, text: str) -> None:
    """Write a golden file, without blanks at the ends of lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    assert not file.exists(), f"{file} is written twice: two of its kind have one name"
    lines = (line.rstrip() for line in text.splitlines())
    file.write_text("".join(map(_counted, (list(same) for _, same in groupby(lines)))), "utf-8")


def _counted(same: Sequence[str]) -> str:
    """Lines that are all the same, counted where there are many."""
    return f"{same[0]}\n" * len(same) if len(same) < 9 else f"{same[0]}\n(and {len(same) - 1} lines more like it)\n"


def named(asked: str) -> str:
    """A file's name for what was asked."""
    return "-".join(re.findall(r"[\w@]+", asked)) or "home"


def _as_json(text: str) -> str:
    """One document, or one a line, laid out so that a difference is a line's."""
    try:
        return _laid_out(json.loads(text))
    except json.JSONDecodeError:
        return "".join(_laid_out(json.loads(line)) for line in text.splitlines())


def _laid_out(value: Any) -> str:
    return json.dumps(_shortened(value), indent=1, ensure_ascii=False) + "\n"


def _shortened(value: Any) -> Any:
    """The same with long lists of numbers and long texts cut: they fill pages, and no one reads them."""
    if isinstance(value, Mapping):
        return {name: _shortened(inner) for name, inner in value.items()}
    if isinstance(value, str) and len(value) > _LONG:
        return f"{value[:_LONG]} … and {len(value) - _LONG} more characters"
    if not isinstance(value, list):
        return value
    if len(value) > 4 and all(isinstance(one, int | float) for one in value):
        return [*value[:3], f"and {len(value) - 3} more"]
    return [_shortened(one) for one in value]


class _Seen(HTMLParser):
    """A page's text, a line for each block and for each row of a table, with what stands in place of pictures."""

    APART: Final = frozenset({
        "address", "article", "aside", "br", "button", "dd", "details", "div", "dl", "dt", "fieldset",
        "figure", "footer", "form", "h1", "h2", "h3", "h4", "header", "label", "legend", "li", "main", "nav",
        "ol", "option", "p", "pre", "section", "select", "summary", "table", "tr", "ul",
    })  # fmt: skip
    CELLS: Final = frozenset({"td", "th"})
    UNSEEN: Final = frozenset({"script", "style", "svg"})
    TOLD: Final = ("alt", "title", "placeholder", "aria-label")

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.lines: list[str] = [""]
        self._hidden = 0
        self._cut = False  # in the middle of an id, which a page does not show
        self._row = 0  # depth: in a row, blocks stay on its line
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if ("class", "cut") in attrs:
            self.lines[-1] += "…"
            self._cut = True
        self._hidden += tag in self.UNSEEN
        self._part(tag)
        self._row += tag == "tr"
        words = [value for name, value in attrs if name in self.TOLD and value]
        if words and not self._hidden:
            self.lines[-1] += f" [{'; '.join(words)}] "

    def handle_endtag(self, tag: str) -> None:
        self._cut = False
        self._hidden -= tag in self.UNSEEN
        self._row -= tag == "tr"
        if tag in self.CELLS:
            self.lines[-1] += " | "
        else:
            self._part(tag)

    def _part(self, tag: str) -> None:
        if tag in self.APART:
            if self._row:
                self.lines[-1] += " "
            else:
                self.lines.append("")

    def handle_data(self, data: str) -> None:
        if not self._hidden and not self._cut:
            self.lines[-1] += data


def seen(markup: str) -> str:
    """What a person reads on a page, a line for each block."""
    folded = (" ".join(line.split()).removesuffix(" |") for line in _Seen(markup).lines)
    return "".join(f"{line}\n" for line in folded if line)


def main_part(markup: str) -> str:
    """A page's markup without what all pages have around it."""
    title, body = re.search(r"<title>.*?</title>", markup, re.DOTALL), re.search(r"<main.*</main>", markup, re.DOTALL)
    return f"{title[0] if title else ''}\n{body[0] if body else markup}"
