"""`hone sft` on a file, with the demo's model: what it counts, what it trains, and when it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recorder.queue import leases
from recorder.queue.training import uses
from recorder.registry import aliases, versions
from recorder.registry.versions import VersionView
from recorder.states import VersionState
from recorder.store.database import Project
from tests.proxy.hone_command import hone
from tests.trainer.runtime.fit_folder import in_store, make_folder
from tests.trainer.world import PROJECT, World
from trainer.demonstrations.conversations import read_conversations

pytestmark = pytest.mark.slow

ALIAS = "org/helpdesk"
ORDERS = range(4820, 4830)


def conversation(order: int) -> dict[str, Any]:
    """An answer that the model does not give by itself."""
    return {
        "messages": [
            {"role": "user", "content": f"Where is order {order}?"},
            {"role": "assistant", "content": f"Order {order} is on a ship."},
        ]
    }


@pytest.fixture
def folder(here: Path) -> Path:
    """A folder with settings, an alias, and ten conversations."""
    of_fit = "[trainer.sft]\nepochs = 2\nlr = 1e-2\nbatch_tokens = 200\nheld_out_share = 0.1\n"
    return make_folder(here, ALIAS, of_fit, "answers.jsonl", map(conversation, ORDERS))


def sft(*arguments: str) -> tuple[int, str, str]:
    return hone("sft", "--alias", ALIAS, "--data", "data", *arguments)


def test_a_dry_run_counts_and_trains_nothing(folder: Path) -> None:
    lines = [conversation(4820), conversation(4820), {"prompt": "x", "completion": "<tool_call>{"}]
    with (folder / "answers.jsonl").open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
    code, out, err = sft("--from", "answers.jsonl", "--dry-run", "--json")
    assert (code, err) == (0, "")
    counts = json.loads(out)
    assert (counts["demonstrations"], counts["rows"], counts["held_out"]) == (10, 10, 1)
    assert counts["excluded"] == {"duplicate": 2, "tool_call_unparsed": 1}
    assert counts["named"][-1] == "answers.jsonl:13: tool_call_unparsed"
    assert counts["rendered_tokens"] == counts["trained_tokens"] < counts["tokens"]
    code, out, _ = sft("--from", "answers.jsonl", "--dry-run")
    assert code == 0
    assert out.startswith("10 demonstrations, 1 of them held out: 10 rows, ")
    assert "Excluded: answers.jsonl:13: tool_call_unparsed" in out

    async def live(world: World) -> VersionView:
        return await world.live()

    assert in_store(folder, live).number == 0


def test_a_version_is_made_of_a_file_and_what_it_was_made_of_is_known(folder: Path) -> None:
    code, out, err = sft("--from", "answers.jsonl", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert (report["version"], report["reason"]) == (f"{ALIAS}@1", None)
    first, second = report["epochs"]
    assert second["loss"] < first["loss"]
    assert report["held_out_loss_before"] > min(first["held_out_loss"], second["held_out_loss"])

    async def after(world: World) -> None:
        alias = await aliases.get_alias(Project(world.store, PROJECT), ALIAS)
        (version,) = [one for one in await versions.list_versions(world.store, alias.id) if one.number == 1]
        assert (version.state, version.metrics["rendered_tokens"]) == (
            VersionState.WRITTEN,
            report["demonstrations"]["rendered_tokens"],
        )
        assert (Path(str(version.path)) / "probe.json").exists()
        rows = [one.source_id for one in read_conversations(folder / "answers.jsonl")]
        counted = await uses.count_uses(world.store, "imitate", rows, version.id)
        assert len(counted) == 9  # one is held out
        assert set(counted.values()) == {report["best_epoch"]}
        await world.promote(version)

    in_store(folder, after)
    if report["best_epoch"] == 2:  # as often as `trainer.sft.epochs`
        code, out, _ = sft("--from", "answers.jsonl", "--dry-run", "--json")
        assert json.loads(out)["excluded"] == {"already_used": 9}


def test_while_a_learner_holds_the_alias_it_says_so_in_one_sentence(folder: Path) -> None:
    async def hold(world: World) -> None:
        lease = await leases.acquire_lease(
            Project(world.store, PROJECT), leases.trainer_lease(ALIAS), "elsewhere:1:x", 60
        )
        assert lease is not None

    in_store(folder, hold)
    code, out, err = sft("--from", "answers.jsonl")
    assert (code, out) == (1, "")
    assert err.strip().endswith(
        f"the learner or a campaign trains the alias '{ALIAS}' now: stop it (`hone up --no-learn` runs without a "
        "learner), and repeat the command."
    )


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("--from", "answers.jsonl", "--where", "reward>0"), 2, "name the demonstrations"),
        ((), 2, "name the demonstrations"),
        (("--where", "reward is good"), 1, "is not a condition"),
        (("--from", "nowhere.jsonl"), 2, "nowhere.jsonl cannot be read"),
        (("--from", "hone.toml"), 2, "hone.toml:1: not JSON"),
    ],
)
def test_what_cannot_be_read_is_refused_before_anything_is_trained(
    folder: Path, arguments: tuple[str, ...], code: int, why: str
) -> None:
    found, _, err = sft(*arguments, "--dry-run")
    assert found == code
    assert why in err


def test_traffic_without_a_match_makes_no_version_and_says_why(folder: Path) -> None:
    code, out, _ = sft("--where", "reward >= 0.9", "--dry-run")
    assert code == 1
    assert out.startswith("0 demonstrations: 0 rows, 0 tokens")
