"""Pages that are made are what the code says; the site builds and has every page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.settings.descriptions import field_descriptions
from scripts.pages import settings
from scripts.pages.__main__ import MADE
from scripts.pages.settings import sections
from scripts.pages.table import cell
from tests.docs.pages import PAGES, ROOT, anchors, links

FROM_ELSEWHERE = re.compile(r'<(?:script|img)[^>]* src="?(?:https?:)?//[^>]*|<link[^>]* rel="?stylesheet[^>]*//[^>]*')


@pytest.mark.parametrize("page", MADE, ids=lambda page: page.name)
def test_a_made_page_is_what_the_code_says(page: Path) -> None:
    assert page.read_text("utf-8") == MADE[page](), "run `python -m scripts.pages --write`"


def test_every_setting_says_what_it_is() -> None:
    described = {
        section.key(name): field_descriptions(section.model).get(name)
        for section in sections()
        for name in section.model.model_fields
    }
    assert [key for key, description in described.items() if not description] == []
    assert {"proxy.port", "judge.rewards.kind", "aliases.NAME.gate.timeout_s", "mcp.NAME.url"} <= described.keys()


def test_a_row_says_type_bounds_unit_and_default() -> None:
    rows = settings.page().splitlines()
    assert any(row.startswith("| `port` | whole number, ≥ 0, ≤ 65535 | `8700` | Port to listen on.") for row in rows)
    assert any(row.startswith("| `canary_max_age_s` | number, > 0, seconds | `86400.0` |") for row in rows)
    assert "| `gate` | [`[aliases.NAME.gate]`](#aliasesnamegate) |  | What a new version must pass. |" in rows
    assert cell("a | b\n  c") == "a \\| b c"


def test_a_dead_anchor_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One thing: `two`\n\n[a](#one-thing-two) [b](other.md#three) `[c](d)`\n")
    assert list(links(page))[:2] == [("", "one-thing-two"), ("other.md", "three")]
    assert anchors(page) == {"one-thing-two"}


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_has_every_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = {path.name for path in tmp_path.glob("*.html")}
    assert {f"{'index' if page.name == 'README.md' else page.stem}.html" for page in PAGES} <= built
    front = (tmp_path / "index.html").read_text("utf-8")
    assert "A proxy" in front
    assert "https://fonts" not in front
    assert FROM_ELSEWHERE.findall(front) == []
    assert (tmp_path / "search" / "search_index.js").is_file()  # the search works from a disk
