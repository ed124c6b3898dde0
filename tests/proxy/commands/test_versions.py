"""Versions are listed and moved from the command line, with or without a proxy."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from proxy.commands.version_view import version_lines
from recorder.registry.alias_moves import set_canary
from recorder.registry.aliases import get_alias
from recorder.registry.versions import get_version
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from recorder.store.ledger import LedgerRow, write_rows
from recorder.views.versions.held_out import HeldOutComparison, HeldOutSource, HeldOutTask
from recorder.views.versions.training_data import (
    ExcludedCount,
    ObjectiveData,
    TrainedGroup,
    TrainedTask,
    TrainingData,
)
from tests.proxy.commands.gated import make_versions
from tests.proxy.hone_command import hone

pytestmark = pytest.mark.usefixtures("bare")


def test_promote_and_rollback_work_without_a_proxy(tmp_path: Path) -> None:
    make_versions(tmp_path, 2)
    data = ("--data", str(tmp_path))
    assert hone("promote", "1", *data) == (0, "helpdesk@1 is live (replaces helpdesk@0)\n", "")
    assert hone("promote", "helpdesk@2", *data)[1] == "helpdesk@2 is live (replaces helpdesk@1)\n"
    assert hone("rollback", *data)[1] == "helpdesk@1 is live (replaces helpdesk@2)\n"
    moved = json.loads(hone("rollback", "helpdesk", "--json", *data)[1])
    assert moved == {"alias": "helpdesk", "live": "helpdesk@0", "previous": "helpdesk@1"}
    assert hone("rollback", *data)[0] == 1


def test_rollback_takes_a_canary_away_and_leaves_the_live_version(tmp_path: Path) -> None:
    (version,) = make_versions(tmp_path, 1)

    async def begin_canary() -> None:
        store = await open_store(tmp_path, RecorderSettings(), migrate=False)
        await set_canary(store, version.alias_id, version.id, 0.5)
        await store.close()

    async def look() -> tuple[str | None, VersionState]:
        store = await open_store(tmp_path, RecorderSettings(), migrate=False)
        alias = await get_alias(Project(store, "default"), "helpdesk")
        state = (await get_version(store, version.id)).state
        await store.close()
        return alias.canary_version_id, state

    asyncio.run(begin_canary())
    assert hone("rollback", "--data", str(tmp_path))[1] == "helpdesk@0 is live (replaces helpdesk@1)\n"
    assert asyncio.run(look()) == (None, VersionState.RETIRED)


@pytest.mark.parametrize("agrees", [True, False])
def test_rollback_asks_once_in_a_terminal_and_names_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agrees: bool
) -> None:
    make_versions(tmp_path, 1)
    data, asked = ("--data", str(tmp_path)), list[str]()
    hone("promote", "1", *data)

    def confirm(question: str, *, abort: bool, err: bool) -> None:
        asked.append(question)
        if not agrees:
            raise click.Abort

    monkeypatch.setattr("proxy.commands.versions.confirm", confirm)
    monkeypatch.setattr("proxy.commands.versions.in_terminal", lambda: True)
    code, said, _ = hone("rollback", *data)
    assert asked == ["Take helpdesk@1 back, and make the version before it live?"]
    assert (code == 0, said) == (agrees, "helpdesk@0 is live (replaces helpdesk@1)\n" if agrees else "")


@pytest.mark.parametrize("flag", ["--yes", "--json"])
def test_rollback_asks_no_program_and_nobody_who_said_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    make_versions(tmp_path, 1)
    hone("promote", "1", "--data", str(tmp_path))
    monkeypatch.setattr("proxy.commands.versions.in_terminal", lambda: True)
    monkeypatch.setattr("proxy.commands.versions.confirm", lambda *_, **__: pytest.fail("it asked"))
    assert hone("rollback", flag, "--data", str(tmp_path))[0] == 0


def test_a_version_gets_a_share_of_new_groups(tmp_path: Path) -> None:
    make_versions(tmp_path, 1)
    data = ("--data", str(tmp_path))
    assert hone("canary", "1", "10", *data) == (0, "helpdesk@1 gets 10% of new groups\n", "")
    told = json.loads(hone("canary", "helpdesk@1", "25", "--why", "it goes well", "--json", *data)[1])
    assert told == {"alias": "helpdesk", "canary": "helpdesk@1", "share": 0.25}
    moves = json.loads(hone("versions", "--moves", "--json", *data)[1])
    assert [(m["move"], m["why"]) for m in moves[:2]] == [("canary", "it goes well"), ("canary", None)]
    assert hone("canary", "1", "101", *data)[0] == 2


def test_a_version_that_is_not_there_or_not_fit_is_refused(tmp_path: Path) -> None:
    make_versions(tmp_path, 0)
    code, _, err = hone("promote", "7", "--data", str(tmp_path))
    assert code == 1
    assert "helpdesk@7" in err


def test_versions_lists_names_states_and_the_live_one(tmp_path: Path) -> None:
    make_versions(tmp_path, 1)
    data = ("--data", str(tmp_path))
    rows = json.loads(hone("versions", "--json", *data)[1])
    assert [(r["name"], r["state"], r["live"]) for r in rows] == [
        ("helpdesk@1", "gated", False),
        ("helpdesk@0", "live", True),
    ]
    header, one, base = hone("versions", "helpdesk", *data)[1].splitlines()
    assert header.split() == ["version", "state", "parent", "verified", "since", "reward", "kl", "tokens", "reason"]
    assert one.split()[:3] == ["helpdesk@1", "gated", "helpdesk@0"]
    assert base.split()[:2] == ["helpdesk@0", "live"]


def test_versions_tells_what_was_decided_by_whom_and_why(tmp_path: Path) -> None:
    make_versions(tmp_path, 1)
    data = ("--data", str(tmp_path))
    hone("promote", "1", *data)
    moves = json.loads(hone("versions", "--moves", "--json", *data)[1])
    assert [(m["version"], m["move"], m["who"]) for m in moves] == [("helpdesk@1", "promote", "hand")]
    header, one = hone("versions", "helpdesk", "--moves", *data)[1].splitlines()
    assert header.split() == ["when", "version", "move", "who", "why", "evidence"]
    assert one.split()[-3:] == ["helpdesk@1", "promote", "hand"]


def gate(folder: Path, version_id: str, **figures: float) -> None:
    """A decision of the gate, written down."""

    async def write() -> None:
        store = await open_store(folder, RecorderSettings(), migrate=False)
        said = {"who": "controller", "reason": "sane", "figures": figures, "limits": {"length_times": 4.0}}
        async with store.write() as conn:
            await write_rows(conn, [LedgerRow("default", "version", version_id, "gated", said)])
        await store.close()

    asyncio.run(write())


LONGER = "Its answers are 6 % longer than the live version's; limit 4 ×, in either direction."


def test_one_version_is_told_with_its_evidence(tmp_path: Path) -> None:
    (version,) = make_versions(tmp_path, 1)
    gate(tmp_path, version.id, times_as_long=1.06)
    data = ("--data", str(tmp_path))
    first, *others = hone("versions", "helpdesk@1", *data)[1].splitlines()
    assert first == "helpdesk@1: gated, trained from helpdesk@0"
    assert f"  {LONGER} (kept)" in others
    told = json.loads(hone("versions", "helpdesk@1", "--json", *data)[1])
    assert {"text": LONGER, "within": True} in told["evidence"]
    assert LONGER in " ".join(hone("versions", "--moves", *data)[1].split())
    assert hone("versions", "helpdesk@7", *data)[0] == 1


def test_rollback_asks_with_the_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (version,) = make_versions(tmp_path, 1)
    gate(tmp_path, version.id, times_as_long=1.06)
    data, asked = ("--data", str(tmp_path)), list[str]()
    hone("promote", "1", *data)
    monkeypatch.setattr("proxy.commands.versions.confirm", lambda question, **_: asked.append(question))
    monkeypatch.setattr("proxy.commands.versions.in_terminal", lambda: True)
    hone("rollback", *data)
    [question] = asked
    assert question.startswith("helpdesk@1:\n")
    assert LONGER in question
    assert question.endswith("Take helpdesk@1 back, and make the version before it live?")


def test_a_version_is_told_with_its_held_out_tasks_and_its_training_data() -> None:
    won = HeldOutTask("a", "order-1", "Where is it?", 0.0, 1.0, 2, 2, "traj_1", "traj_2")
    lost = HeldOutTask("b", None, None, 0.75, 0.25, 1, 1, "traj_3", "traj_4")
    found = HeldOutComparison(
        HeldOutSource("validation", "helpdesk@2", "success", "orders"), (won,), (lost,), 5, 1, 0, 0
    )
    group = TrainedGroup("grp_1", "order-9", "trained", None, "k", None, 3, 4, 0.5)
    data = TrainingData(
        3, 2, (TrainedTask("k", None, "Where?", (group,), 3, 0.5),), {"live": 3},
        (ObjectiveData("imitate", "file", 2, 4),), (ExcludedCount("too_few", 2, "Too few."),),
    )  # fmt: skip
    version = SimpleNamespace(name="helpdesk@3", state="live", parent="helpdesk@2")
    detail: Any = SimpleNamespace(version=version, evidence=(), held_out=[found], trained_on=data)
    assert [text for text, _ in version_lines(detail)] == [
        "helpdesk@3: live, trained from helpdesk@2",
        "better than helpdesk@2, by validation (success), 1 of 5",
        "  0 % → 100 %  order-1",
        "    hone show traj_1; hone show traj_2",
        "worse than helpdesk@2, by validation (success)",
        "  75 % → 25 %  a recorded task",
        "    hone show traj_3; hone show traj_4",
        "trained on",
        "  trajectories of scored groups: 3 (live 3)",
        "  objective imitate: 2 × file, 4 passes",
        "  3 at Where?, mean reward 0.5",
        "  and 1 more task",
        "  excluded: 2 (too_few). Too few.",
    ]
