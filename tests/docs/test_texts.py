"""What texts name is there: each rule of `tests.docs.rules` over every text; and each rule sees what breaks it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import import_map
from tests.docs import rules
from tests.docs.command_line import refused, wrong
from tests.docs.pages import ROOT
from tests.docs.rules import KEY, RULES, is_key_of_code, is_setting
from tests.docs.texts import Text, hone_lines, texts


@pytest.mark.parametrize("rule", RULES)
def test_no_text_breaks_a_rule(rule: str) -> None:
    assert rules.strays(rule) == []


def test_texts_of_every_kind_were_found_and_read() -> None:
    found = list(texts())
    assert {text.kind for text in found} == {"page", "made", "deploy", "code"}
    called = {words[0] for text in found if text.deployed for words in text.calls()}
    assert {"status", "doctor", "versions", "keys", "db"} <= called
    assert len({text.path for text in found}) == len(found)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("commands", "`hone shwo ID`"),
        ("commands", "```sh\nhone serve --prot 8700\n```"),
        ("settings", "`engine.ports` or `[engine.ports]`"),
        ("variables", "`HONE_JUDGE__MODLE`"),
        ("targets of make", "`make tset`"),
        ("paths", "`docs/no-such-page.md`"),
        ("links", "[a page](no-such-page.md)"),
        ("names", f"`{'recorder'}.no_such_room`"),
    ],
)
def test_what_breaks_a_rule_would_be_seen(rule: str, said: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\nSay {said}.\n" if "\n" not in said else f"# A page\n\n{said}\n")
    find, _ = RULES[rule]
    assert list(find(Text(page, "page"))) != []


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("commands", "# run `hone shwo ID`"),
        ("commands", "#     hone serve --prot 8700"),
        ("settings", "# set judge.modle"),
        ("variables", "HONE_JUDGE__MODLE=x"),
        ("paths", "# see docs/no-such-page.md"),
    ],
)
def test_what_breaks_a_rule_in_deploy_would_be_seen(rule: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(f"{said}\n")
    find, _ = RULES[rule]
    assert list(find(Text(file, "deploy", deployed=True))) != []


def test_a_command_that_does_not_exist_would_be_seen() -> None:
    assert wrong(["shwo", "ID"]) == "no command 'shwo'"
    assert wrong(["keys", "create", "--scop", "infer"]) == "`hone keys create` has no --scop"
    assert wrong(["show", "ID"]) is None
    assert "No such option" in str(refused(["serve", "--prot", "8700"]))
    assert "Missing argument" in str(refused(["show"]))
    assert list(hone_lines("A=1 .venv/bin/hone up # all\nls && hone show … ID \\\n  --full")) == [
        ["up"],
        ["show", "ID", "--full"],
    ]


def test_a_setting_that_does_not_exist_would_be_seen() -> None:
    for key in ("judge.model", "aliases.NAME.gate.kl_max", "aliases.helpdesk.promote", "gate.kl_max", "engine.env.X"):
        assert is_setting(key), key
    for key in ("judge.modle", "engine.ports", "aliases.NAME.gait", "gate.max", "recorder.url.x"):
        assert not is_setting(key), key
    assert KEY.findall("set judge.model, not ../judge/model.py") == ["judge.model"]
    assert is_key_of_code("proxy.port")
    assert is_key_of_code("judge.feedback")
    for stray in ("recorder.no_such_room", "proxy.settings.hone.Nothing", "proxy.cli.main.inner", "proxy.prot"):
        assert not is_key_of_code(stray)


def test_what_troubleshooting_quotes_is_said_by_the_code() -> None:
    page = ROOT / "docs" / "troubleshooting.md"
    said = "\n".join(literals())
    cells = [row.split("|")[1] for row in page.read_text("utf-8").splitlines() if row.startswith("| ")]
    quoted = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell) if not text.startswith(("hone ", "/"))]
    assert len(quoted) > 40
    assert [text for text in quoted for part in text.split("…") if part.strip() not in said] == []


def literals() -> Iterator[str]:
    """Every text that stands in the packages; one that is put together by its constant parts."""
    for package in import_map.PACKAGES:
        for file in import_map.files(package):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value
