"""The code blocks of README and docs/ are run: settings are loaded, programs talk to a proxy, commands find a store.

What is not run stands in tests/docs/running.py with its reason.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from openai import OpenAI

from proxy.settings.loader import load_settings
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from tests.docs.command_line import COMMANDS, named, refused
from tests.docs.pages import ROOT, WRITTEN, Block, blocks, commands, inline, is_json
from tests.docs.running import HARMLESS, LEFT_OUT, NOT_FOR_HERE, ONLY_READ, OTHERS, STANDS_FOR
from tests.docs.texts import hone_lines, split
from tests.names import is_name
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.hone_command import hone
from tests.proxy.running import ALIAS, Proxy, serving

pytestmark = pytest.mark.slow

BLOCKS = [block for page in WRITTEN for block in blocks(page)]
HERE = "http://127.0.0.1:8700"  # where the pages have Hone listen
CHECKED = {"toml", "json", "python", "sh"}


def of(language: str) -> pytest.MarkDecorator:
    """Every block of a language that is not left out."""
    found = [b for b in BLOCKS if b.language == language and (b.page, b.text.split("\n")[0]) not in LEFT_OUT]
    return pytest.mark.parametrize("block", found, ids=str)


def test_every_block_is_run_or_says_why_not() -> None:
    unknown = {str(block): block.language for block in BLOCKS if block.language not in {*CHECKED, *NOT_FOR_HERE}}
    assert unknown == {}, "name its language (```sh), or say in tests/docs/running.py why it is not run"
    there = {(block.page, block.text.split("\n")[0]) for block in BLOCKS}
    assert LEFT_OUT.keys() - there == set()
    assert {"toml", "python", "sh", "json"} <= {block.language for block in BLOCKS}


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.upper().startswith("HONE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@of("toml")
def test_settings_are_taken(block: Block, tmp_path: Path) -> None:
    tomllib.loads(block.text)
    (tmp_path / "hone.toml").write_text(block.text, "utf-8")
    loaded = load_settings(None, {})
    assert any(origin.endswith("hone.toml") for origin in loaded.origin.values())


@of("json")
def test_json_is_json(block: Block) -> None:
    assert is_json(block.text)


@asynccontextmanager
async def proxy_in(folder: Path) -> AsyncIterator[Proxy]:
    """A real proxy before the tests' engine, with its store in a folder."""
    store = await open_store(folder, RecorderSettings(), migrate=True)
    try:
        async with FakeEngine() as engine, serving(store, engine) as proxy:
            yield proxy
    finally:
        await store.close()


@of("python")
async def test_programs_run_before_a_proxy(block: Block, tmp_path: Path) -> None:
    async with proxy_in(tmp_path / "data") as proxy:
        names: dict[str, object] = {}
        code = compile(block.text.replace(HERE, proxy.url), str(block), "exec")
        await asyncio.to_thread(exec, code, names)
        if isinstance(client := names.get("client"), OpenAI):
            client.close()  # a program that ends need not say so
        if callable(run := names.get("run")):
            await run(SimpleNamespace(id="1", input="hi", base_url=f"{proxy.url}/v1", api_key="none", model=ALIAS))
        asked = re.search(r"completions\.create|messages\.create|responses\.create", block.text) is not None
        assert bool(await proxy.calls()) == asked


# --- shells


@of("sh")
def test_every_program_of_a_shell_block_is_known(block: Block) -> None:
    for words in commands(block.text):
        program = next((word for word in words if "=" not in word), None)
        name = Path(program).name if program else "env"
        if name.endswith(".sh"):
            assert any(found for folder in ("deploy", "scripts") for found in (ROOT / folder).rglob(name)), program
            continue
        assert name == "hone" or name in OTHERS, f"{name}: say in tests/docs/running.py why it is not run"
        if name.startswith("python") and "-m" in words:
            module = words[words.index("-m") + 1]
            assert module.partition(".")[0] not in OURS or is_module(module), module
        for extra in re.findall(r"\[([\w,]+)\]", " ".join(words)) if "pip" in words[:2] or "pipx" in words[:2] else ():
            assert set(extra.split(",")) <= extras(), extra


OURS = {"benchmarks", "examples", "scripts", "proxy", "recorder", "judge", "trainer"}


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file() or is_name(name)


def extras() -> set[str]:
    return set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def test_every_hone_command_of_a_shell_block_is_run_or_says_why_not() -> None:
    named_here = {named(words)[0] for block in BLOCKS if block.language == "sh" for words in hone_lines(block.text)}
    assert named_here - {*HARMLESS, *ONLY_READ, ""} == set(), "add it to a table of tests/docs/running.py"
    assert HARMLESS & ONLY_READ.keys() == set()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with two runs of one group, one of them without an end."""
    folder = tmp_path_factory.mktemp("recorded") / "data"

    async def make() -> None:
        async with proxy_in(folder) as proxy:
            for run in ("order-4821", "order-4822"):
                assert (await proxy.chat(path=f"/g/orders/t/{run}")).status_code == 200
            done = await proxy.http.post("/g/orders/t/order-4821/hone/v1/done", json={})
            assert done.status_code == 200, done.text

    asyncio.run(make())
    return folder


def said_by(page: Path) -> Iterator[list[str]]:
    """Every whole `hone …` of a page that is run, block after block, then the text; placeholders filled in."""
    lines = [words for block in blocks(page) if block.language == "sh" for words in hone_lines(block.text)]
    lines += [words[1:] for text in inline(page) if text.startswith("hone ") for words in split(text)]
    for words in lines:
        if named(words)[0] in HARMLESS and refused(words) is None and not only_named(words):
            yield [STANDS_FOR.get(word, word) for word in words]


def only_named(words: list[str]) -> bool:
    """Whether a command that takes arguments stands without any: a page speaks of it, and shows no use."""
    name, rest = named(words)
    return not rest and any(isinstance(parameter, click.Argument) for parameter in COMMANDS[name].params)


@pytest.mark.parametrize("page", [page for page in WRITTEN if list(said_by(page))], ids=lambda page: page.name)
def test_commands_of_a_page_find_what_was_recorded(page: Path, recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded, tmp_path / ".hone")
    for words in said_by(page):
        status, out, err = hone(*words)
        assert status == 0, f"hone {' '.join(words)}: {err or out}"
