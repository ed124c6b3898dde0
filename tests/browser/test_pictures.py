"""Which pages are drawn for README and docs: the group that was trained on, and some other where none was."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from scripts import pictures
from tests.browser.rich import Rich
from tests.browser.served import copied

pytestmark = pytest.mark.browser


def _state(store: Path, page: str) -> str:
    kind, object_id = page.split("/")[2:]
    group = "SELECT group_id FROM trajectories WHERE id = ?" if kind == "trajectories" else "SELECT ?"
    with closing(sqlite3.connect(store)) as db:
        [state] = db.execute(f"SELECT state FROM groups WHERE id = ({group})", (object_id,)).fetchone()
    return str(state)


def test_what_was_trained_on_is_shown(rich: Rich) -> None:
    shown = pictures.pages(rich.data / "hone.db")
    assert [_state(rich.data / "hone.db", shown[name]) for name in ("group", "run")] == ["trained", "trained"]


def test_where_every_version_was_taken_back_another_group_is_shown(rich: Rich, tmp_path: Path) -> None:
    store = copied(rich.data, tmp_path / "data") / "hone.db"
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE groups SET state = 'scored' WHERE state = 'trained'")
    shown = pictures.pages(store)
    assert [_state(store, shown[name]) for name in ("group", "run")] == ["scored", "scored"]


async def test_a_store_without_a_reward_is_refused_in_words(tmp_path: Path) -> None:
    await (await open_store(tmp_path, RecorderSettings(), migrate=True)).close()
    with pytest.raises(SystemExit, match="let the demo run"):
        pictures.pages(tmp_path / "hone.db")
