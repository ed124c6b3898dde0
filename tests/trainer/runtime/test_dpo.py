"""`hone dpo` with the demo's model: what it counts, what it trains, and when it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from recorder.queue import feedback, leases
from recorder.queue.training import uses
from recorder.registry import aliases, versions
from recorder.states import VersionState
from recorder.store import schema
from recorder.store.database import Project
from recorder.views.trajectories import transcripts
from tests.proxy.hone_command import hone
from tests.trainer.runtime.fit_folder import in_store, make_folder
from tests.trainer.world import PROJECT, World
from trainer.preferences.pair_files import read_pairs

pytestmark = pytest.mark.slow

ALIAS = "org/helpdesk"
ORDERS = range(4820, 4826)


def pair(order: int) -> dict[str, Any]:
    """An answer that the model does not give by itself, and one that it may."""
    return {
        "prompt": [{"role": "user", "content": f"Where is order {order}?"}],
        "chosen": [{"role": "assistant", "content": f"Order {order} is on a ship."}],
        "rejected": [{"role": "assistant", "content": f"I cannot find order {order}."}],
    }


@pytest.fixture
def folder(here: Path) -> Path:
    """A folder with settings, an alias, and six pairs."""
    of_fit = "[trainer.dpo]\nepochs = 2\nlr = 1e-3\nbatch_tokens = 200\nheld_out_share = 0.1\n"
    return make_folder(here, ALIAS, of_fit, "pairs.jsonl", map(pair, ORDERS))


def dpo(*arguments: str) -> tuple[int, str, str]:
    return hone("dpo", "--alias", ALIAS, "--data", "data", *arguments)


def test_a_dry_run_counts_and_trains_nothing(folder: Path) -> None:
    alike = {**pair(1), "rejected": pair(1)["chosen"]}
    lines = [pair(4820), {"prompt": "x", "chosen": "y", "rejected": "<tool_call>{"}, alike]
    with (folder / "pairs.jsonl").open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
    code, out, err = dpo("--from", "pairs.jsonl", "--dry-run", "--json")
    assert (code, err) == (0, "")
    counts = json.loads(out)
    assert (counts["pairs"], counts["sources"], counts["rows"], counts["held_out"]) == (6, {"file": 6}, 12, 1)
    assert counts["excluded"] == {"duplicate": 1, "same_answer": 1, "tool_call_unparsed": 1}
    assert counts["named"][1] == "pairs.jsonl:8: tool_call_unparsed"
    assert counts["rendered_tokens"] == counts["chosen_tokens"] + counts["rejected_tokens"] < counts["tokens"]
    code, out, _ = dpo("--from", "pairs.jsonl", "--dry-run")
    assert code == 0
    assert out.startswith(f"6 pairs (6 of the file), 1 of them held out: 12 rows, {counts['tokens']} tokens, ")
    assert "Excluded: pairs.jsonl:9: same_answer" in out


def test_recorded_pairs_are_counted_and_another_providers_answer_can_be_the_chosen_side(folder: Path) -> None:
    async def record(world: World) -> None:
        await world.group("where is 1?", [1.0, 0.0], seed=1)
        group = await world.group("where is 2?", [0.5, 0.5], seed=2)
        other, own = [one.id for one in (await transcripts.load_group(world.store, group)).members]
        async with world.store.write() as conn:
            calls, runs = schema.calls.c, schema.trajectories.c
            await conn.execute(update(schema.calls).values(base_fingerprint=None))  # all is rendered
            await conn.execute(update(schema.calls).where(calls.trajectory_id == other).values(model="frontier"))
            await conn.execute(update(schema.trajectories).where(runs.id == other).values(alias_id=None))
        await feedback.add_feedback(Project(world.store, PROJECT), other, "preference", True, tags={"loser": own})

    in_store(folder, record)
    code, out, err = dpo("--dry-run", "--json")
    assert (code, err) == (0, "")
    counts = json.loads(out)
    assert (counts["sources"], counts["excluded"]) == ({"preference": 1, "ranking": 1}, {})
    assert counts["rendered_tokens"] == counts["chosen_tokens"] + counts["rejected_tokens"] > 0
    code, out, _ = dpo("--where", "chosen.model = frontier", "--dry-run", "--json")
    assert (code, json.loads(out)["sources"]) == (0, {"preference": 1})


def test_a_version_is_made_of_a_file_and_its_epochs_are_shown(folder: Path) -> None:
    code, out, err = dpo("--from", "pairs.jsonl", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert (report["version"], report["reason"], report["pairs"]["pairs"]) == (f"{ALIAS}@1", None, 6)
    assert report["held_out_loss_before"] == pytest.approx(0.693147, abs=1e-5)
    assert (report["held_out_margin_before"], report["held_out_accuracy_before"]) == (0, 0)
    first, second = report["epochs"]
    assert second["loss"] < first["loss"]
    assert second["held_out_margin"] > first["held_out_margin"] > 0
    assert (second["held_out_accuracy"], report["best_epoch"]) == (1, 2)

    async def after(world: World) -> None:
        alias = await aliases.get_alias(Project(world.store, PROJECT), ALIAS)
        (version,) = [one for one in await versions.list_versions(world.store, alias.id) if one.number == 1]
        assert (version.state, version.metrics["pairs"]) == (VersionState.WRITTEN, 6)
        assert (Path(str(version.path)) / "probe.json").exists()
        rows = [one.source_id for one in read_pairs(folder / "pairs.jsonl")]
        assert sorted((await uses.count_uses(world.store, "prefer", rows, version.id)).values()) == [2] * 5
        await world.promote(version)

    in_store(folder, after)
    _, out, _ = dpo("--from", "pairs.jsonl", "--dry-run", "--json")
    assert json.loads(out)["excluded"] == {"already_used": 5}  # the one that was held out was not used


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("processes = 2\n", "hone dpo trains in one process, and trainer.processes is 2: set it to 1."),
        ('backend = "tinker"\n', 'hone dpo trains on this machine: set trainer.backend = "local" for it.'),
    ],
)
def test_several_processes_and_a_training_service_are_refused(folder: Path, settings: str, why: str) -> None:
    file = folder / "hone.toml"
    file.write_text(file.read_text().replace("[trainer]\n", f"[trainer]\n{settings}"))
    code, out, err = dpo("--from", "pairs.jsonl")
    assert (code, out) == (1, "")
    assert why in err


def test_while_a_learner_holds_the_alias_it_says_so_in_one_sentence(folder: Path) -> None:
    async def hold(world: World) -> None:
        lease = await leases.acquire_lease(
            Project(world.store, PROJECT), leases.trainer_lease(ALIAS), "elsewhere:1:x", 60
        )
        assert lease is not None

    in_store(folder, hold)
    code, out, err = dpo("--from", "pairs.jsonl")
    assert (code, out) == (1, "")
    assert err.strip().endswith(
        f"the learner or a campaign trains the alias '{ALIAS}' now: stop it (`hone up --no-learn` runs without a "
        "learner), and repeat the command."
    )


def test_a_file_that_is_wrong_is_refused_and_a_record_without_a_pair_makes_no_version(folder: Path) -> None:
    code, _, err = dpo("--from", "hone.toml", "--dry-run")
    assert code == 2
    assert "hone.toml:1: not JSON" in err
    code, out, _ = dpo("--dry-run")
    assert code == 1
    assert out.startswith("0 pairs: 0 rows, 0 tokens")
    code, _, err = dpo("--where", "reward > 0", "--from", "pairs.jsonl")
    assert code == 2
    assert "--where selects recorded pairs, and --from FILE has its own: name one of them." in err
    code, _, err = dpo("--where", "chosen.rewards > 0", "--dry-run")
    assert code == 1
    assert "there is no field 'rewards'" in err
