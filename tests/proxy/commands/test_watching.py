"""`hone top` on a real terminal: it follows the store, and Ctrl-C is its end; with --json it is lines."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Literal

import pytest

from recorder.registry.replicas import report_replica
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from tests.proxy.commands.gated import make_versions
from tests.proxy.hone_command import hone
from tests.proxy.terminal import CTRL_C, on_terminal

pytestmark = [pytest.mark.usefixtures("bare"), pytest.mark.slow]


def engine_says(data: Path, state: Literal["up", "down"], detail: str) -> None:
    async def report() -> None:
        store = await open_store(data, RecorderSettings(), migrate=False)
        await report_replica(Project(store, "default"), "http://engine:1", state=state, loaded=["base"], detail=detail)
        await store.close()

    asyncio.run(report())


def test_it_follows_the_store_until_ctrl_c(tmp_path: Path) -> None:
    make_versions(tmp_path, 0)
    engine_says(tmp_path, "up", "ready")
    with on_terminal("-m", "proxy.cli", "top", "--data", str(tmp_path)) as screen:
        drawn = screen.wait_for("What needs me?")
        assert "Is it learning?" in drawn
        assert "helpdesk" in drawn
        engine_says(tmp_path, "down", "out of memory \x1b]0;owned\x07")
        later = screen.wait_for("is down: out of memory ␛]0;owned␇")
        assert "engine_down" in later
        screen.press(CTRL_C)
        assert screen.end() == 0
        assert "Traceback" not in screen.text
        assert "Aborted" not in screen.text
        assert "owned\x07" not in screen.text


def test_with_json_each_change_is_a_line(tmp_path: Path) -> None:
    make_versions(tmp_path, 0)
    with on_terminal("-m", "proxy.cli", "top", "--json", "--data", str(tmp_path)) as screen:
        first = screen.wait_for("\n")
        engine_says(tmp_path, "down", "no room")
        screen.wait_for("no room")
        screen.press(CTRL_C)
        assert screen.end() == 0
    assert json.loads(first)["learning"][0]["about"] == "helpdesk"
    lines = [json.loads(line) for line in screen.text.splitlines() if line.startswith("{")]
    assert any("no room" in one["text"] for line in lines for one in line["needs"])


def test_what_is_wrong_with_the_store_ends_it_in_one_line(tmp_path: Path) -> None:
    code, _, err = hone("top", "--data", str(tmp_path / "nothing"))
    assert code == 1
    assert "there is no store" in err


def test_the_flag_that_it_replaces_names_it() -> None:
    code, _, err = hone("status", "--watch")
    assert code == 2
    assert "--watch is now called `hone top`" in err
