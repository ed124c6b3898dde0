"""`hone datasets`, and what narrows by them on the command line."""

from __future__ import annotations

import json

from recorder.store.database import Store
from tests.recorder.commands.hone import Hone
from tests.recorder.rows import Rows


async def _three(store: Store) -> list[str]:
    rows = Rows(store)
    return [await rows.trajectory(external_id=name, state="completed") for name in ("one", "two", "three")]


def test_a_dataset_is_made_changed_shown_and_deleted(hone: Hone) -> None:
    first, second, third = hone.do(_three)
    assert "No dataset yet" in hone("datasets", "list").output
    assert "with 1 trajectory" in hone("datasets", "create", "hard", "one").output
    hone("datasets", "create", "hard", fails=True)
    added = hone("datasets", "add", "hard", "one", "two", third).output
    assert added == "Added 2 trajectories to the dataset hard. 1 were in it already.\n"
    assert hone.json("datasets", "remove", "hard", "two") == {"dataset": "hard", "changes": {second: "done"}}
    shown = hone.json("datasets", "show", "hard")
    assert (shown["trajectory_ids"], shown["dataset"]["trajectories"]) == ([third, first], 2)
    assert third in hone("datasets", "show", "hard").output
    assert [row["external_id"] for row in hone.json("trajectories", "--dataset", "hard")] == ["three", "one"]
    hone("delete", "three", "--yes")
    [listed] = hone.json("datasets", "list")
    assert (listed["trajectories"], listed["deleted"], listed["made_by"]) == (1, 1, "hone datasets")
    assert "were deleted since" in hone("datasets", "show", "hard").output
    hone("datasets", "delete", "hard", "--yes")
    assert hone.json("datasets", "list") == []
    assert len(hone.json("trajectories")) == 2


def test_exports_are_narrowed_and_unknown_names_are_errors(hone: Hone) -> None:
    hone.do(_three)
    hone("datasets", "create", "hard", "two")
    lines = [json.loads(line) for line in hone("export", "--dataset", "hard").stdout.splitlines()]
    assert [line["trajectory_external_id"] for line in lines] == ["two"]
    for command in (
        ("export", "--dataset", "nothing"),
        ("datasets", "add", "nothing", "one"),
        ("datasets", "add", "hard", "nobody"),
        ("datasets", "show", "nothing"),
        ("datasets", "delete", "nothing", "--yes"),
        ("datasets", "create", "<b>"),
        ("scenarios", "from-traffic"),
    ):
        hone(*command, fails=True)
