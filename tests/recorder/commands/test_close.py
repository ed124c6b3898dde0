"""`hone close` on the command line: a run, a group, everything."""

from __future__ import annotations

from recorder.store.database import Store
from recorder.store.schema import groups, trajectories
from tests.recorder.commands.hone import Hone
from tests.recorder.rows import Rows


async def _open(store: Store) -> list[str]:
    """A group of two open runs, one of them being answered, and one of a single run."""
    rows = Rows(store)
    pair, lone = await rows.group(external_id="pair"), await rows.group(external_id="lone")
    for name, group in (("one", pair), ("two", pair), ("three", lone)):
        await rows.trajectory(group, external_id=name)
    return [pair, lone]


def states(hone: Hone, command: str) -> dict[str, str]:
    return {row["external_id"]: row["state"] for row in hone.json(command)}


def test_a_run_is_closed_by_its_name_and_its_group_stays_open(hone: Hone) -> None:
    hone.do(_open)
    assert "Closed trajectory" in hone("close", "one").output
    assert states(hone, "trajectories") == {"one": "completed", "two": "open", "three": "open"}
    assert states(hone, "groups") == {"pair": "open", "lone": "open"}
    again = hone("close", "one").output
    assert "had already ended" in again
    assert "still open: `hone close " in again


def test_a_group_is_closed_with_its_runs(hone: Hone) -> None:
    hone.do(_open)
    assert hone.json("close", "pair")["group"]["state"] == "ready"
    assert states(hone, "trajectories") == {"one": "completed", "two": "completed", "three": "open"}


def test_everything_quiet_is_closed(hone: Hone) -> None:
    hone.do(_open)

    async def answering(store: Store) -> None:
        rows = Rows(store)
        busy = await rows.trajectory(await rows.group(external_id="busy", id="grp_busy"), external_id="b", id="traj_b")
        await rows.call(busy, state="open", id="call_busy", sampled=0)

    hone.do(answering)
    assert hone.json("close", "--all") == {"trajectories": 3, "groups_ready": 1, "groups_excluded": 1, "busy": 1}
    assert states(hone, "groups") == {"pair": "ready", "lone": "left_out", "busy": "open"}
    assert "1 trajectories have a running call" in hone("close", "--all").output


def test_a_campaigns_runs_and_groups_are_left_to_it(hone: Hone) -> None:
    async def planned(store: Store) -> None:
        rows = Rows(store)
        group = await rows.group(external_id="planned", declared_size=4)
        await rows.set(groups, group, campaign_id="campaign_1")
        await rows.set(trajectories, await rows.trajectory(group), origin="campaign")

    hone.do(planned)
    assert hone.json("close", "--all") == {"trajectories": 0, "groups_ready": 0, "groups_excluded": 0, "busy": 0}
    assert states(hone, "groups") == {"planned": "open"}


def test_what_is_not_there_and_what_is_not_said_are_errors(hone: Hone) -> None:
    hone("close", "nothing", fails=True)
    hone("close", fails=True)
    hone("close", "one", "--all", fails=True)
