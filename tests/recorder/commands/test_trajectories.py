"""Runs, groups, exports and the ledger on the command line, as a person and as a script sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.cli import cli
from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address, SamplingParameters
from recorder.queue import claims, feedback
from recorder.queue.groups.closure import close_group
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.search.indexer import index_calls
from recorder.settings import RecorderSettings
from recorder.states import Purpose
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import trajectories
from tests.recorder.commands.hone import Hone
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.score_rows import new_score
from tests.recorder.talk import Talk, assistant, choice, tool_result, tool_turn, user

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SETTINGS = RecorderSettings()
HOSTILE = "\x1b[2J\u202e\x9b"


async def two_runs(store: Store) -> None:
    """Two runs of one group, judged: one asked a tool, both answered."""
    alias = await Rows(store).alias()
    recorder = Recorder(store, SETTINGS)
    await recorder.start()
    talk = Talk(recorder)
    for number, done in (("1", False), ("2", True)):
        address = Address(trajectory=f"run-{number}", group="orders")
        asked = [user("Where is order 4821?")]
        await talk.call(asked, tool_turn(f"call-{number}"), address)
        last = Address(trajectory=f"run-{number}", group="orders", done=done)
        heard = [*asked, tool_turn(f"call-{number}"), tool_result(f"call-{number}", f"shipped {HOSTILE}")]
        await talk.call(heard, assistant(f"It arrives on day {number}."), last)
    await recorder.stop()
    await close_group(Project(store, PROJECT), "orders")
    claim = await claims.claim_for_judging(Project(store, PROJECT), "judge", 60)
    assert claim is not None
    first, second = await Rows(store).members(claim.group_id)
    await Rows(store).set(trajectories, first, alias_id=alias.id, version_id=alias.live_version_id)
    await feedback.add_feedback(Project(store, PROJECT), first, "resolved", True, comment="thanks")
    parts = [
        NewPart(first, "reward", 0.25, explanation=f"a detour {HOSTILE}"),
        NewPart(second, "reward", 0.75, explanation="straight"),
    ]
    await scores.record_score(store, claim, new_score("recipe", judge_model="judge-1", parts=parts))


def test_runs_are_listed_newest_first(hone: Hone) -> None:
    hone.do(two_runs)
    found = hone.json("trajectories")
    assert [(t["external_id"], t["state"], t["call_count"]) for t in found] == [
        ("run-2", "completed", 2), ("run-1", "completed", 2),
    ]  # fmt: skip
    assert {t["reward"] for t in found} == {0.25, 0.75}
    assert {(t["alias"], t["version"]) for t in found} == {("helpdesk", "helpdesk@0"), (None, None)}
    assert {t["group_external_id"] for t in found} == {"orders"}
    assert {t["task"] for t in found} == {"Where is order 4821?"}
    text = hone("trajectories").stdout
    assert text.index("run-2") < text.index("run-1")
    assert "group_closed" in text


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--state", "completed"), 2),
        (("--state", "open"), 0),
        (("--state", "open", "--state", "completed"), 2),
        (("--purpose", "train"), 2),
        (("--purpose", "val"), 0),
        (("--group", "orders"), 2),
        (("--group", "other"), 0),
        (("--alias", "helpdesk"), 1),
        (("--alias", "other"), 0),
        (("--limit", "1"), 1),
    ],
)
def test_lists_of_runs_can_be_narrowed(hone: Hone, options: tuple[str, ...], count: int) -> None:
    hone.do(two_runs)
    assert len(hone.json("trajectories", *options)) == count


async def shadows(store: Store) -> None:
    """A group of shadow answers, and a pair of a gate, of the alias."""
    rows = Rows(store)
    alias = await rows.alias()
    for purpose in ("train", "eval"):
        group = await rows.ready_group(alias_id=alias.id, purpose=purpose)
        for member in await rows.members(group):
            await rows.set(trajectories, member, origin="shadow")


def test_lists_say_what_they_hide_and_show_it_on_request(hone: Hone) -> None:
    hone.do(two_runs)
    hone.do(shadows)
    for command, usual, hidden in (("trajectories", 2, 4), ("groups", 1, 2)):
        told = f"{hidden} of origin shadow (shadow answers, pairs of a gate) are hidden: --origin any shows all."
        assert len(hone.json(command)) == usual
        assert told in hone(command).stderr
        assert told in hone(command, "--json").stderr
        assert len(hone.json(command, "--origin", "any")) == usual + hidden
        assert hone(command, "--origin", "any").stderr == ""
        assert len(hone.json(command, "--origin", "shadow")) == hidden
        assert len(hone.json(command, "--origin", "live", "--origin", "shadow")) == usual + hidden
    pair = hone.json("groups", "--origin", "shadow")[0]["id"]
    assert len(hone.json("trajectories", "--group", pair)) == 2  # a group that is asked for is shown


def test_what_a_list_shows_of_an_id_is_what_other_commands_take(hone: Hone) -> None:
    hone.do(two_runs)
    (first, *_), (group,) = hone.json("trajectories"), hone.json("groups")
    listed = hone("trajectories").output + hone("groups").output
    for id_ in (first["id"], group["id"]):
        assert id_ not in listed
        assert id_[-8:] in listed
        assert hone("show", id_[-8:]).output == hone("show", id_).output
    assert hone.json("trajectories", "--group", group["id"][-8:]) == hone.json("trajectories", "--group", group["id"])
    assert hone.json("ledger", first["id"][-8:]) == hone.json("ledger", first["id"])
    exported = hone("export", "--trajectory", first["id"][-8:]).output
    assert exported == hone("export", "--trajectory", first["id"]).output
    assert f"Deleted {first['id']}" in hone("delete", "--yes", first["id"][-8:]).output


def test_groups_are_listed_with_their_rewards(hone: Hone) -> None:
    hone.do(two_runs)
    [group] = hone.json("groups")
    assert (group["external_id"], group["state"], group["members"]) == ("orders", "scored", 2)
    assert (group["reward_mean"], group["reward_min"], group["reward_max"]) == (0.5, 0.25, 0.75)
    assert group["task"] == "Where is order 4821?"
    assert "orders" in hone("groups").stdout
    assert hone.json("groups", "--state", "open") == hone.json("groups", "--campaign", "none") == []


def test_a_run_is_shown_by_its_callers_id(hone: Hone) -> None:
    hone.do(two_runs)
    text = hone("show", "run-1").stdout
    for part in (
        "Where is order 4821?",
        "→ find(",
        "It arrives on day 1.",
        "0.25",
        "a detour",
        "resolved",
        "path/stated",
    ):
        assert part in text
    assert "It arrives on day 2." not in text
    assert not set(text) & set(HOSTILE) - set("[2J")
    found = hone.json("show", "run-1", "--group", "orders")
    assert (found["kind"], found["trajectory"]["external_id"]) == ("trajectory", "run-1")
    assert found["trajectory"]["calls"][0]["choices"][0]["token_ids"] == [7, 8, 9]


def test_a_group_and_a_call_are_shown_by_their_ids(hone: Hone) -> None:
    hone.do(two_runs)
    [group] = hone.json("groups")
    for name in (group["id"], "orders"):
        text = hone("show", name).stdout
        assert text.index("straight") < text.index("a detour")
    call_id = hone.json("show", "run-2")["trajectory"]["calls"][1]["id"]
    assert "It arrives on day 2." in hone("show", call_id).stdout
    assert hone.json("show", call_id)["call"]["id"] == call_id
    assert hone.json("show", group["id"])["group"]["state"] == "scored"


def test_what_is_not_there_is_one_line(hone: Hone) -> None:
    result = hone("show", f"nothing{HOSTILE}", fails=True)
    assert result.stderr.startswith("hone: no trajectory, call or group 'nothing\\x1b")
    assert result.stderr.count("\n") == 1


def test_an_unjudged_run_can_be_shown(hone: Hone) -> None:
    async def one(store: Store) -> None:
        recorder = Recorder(store, SETTINGS)
        await recorder.start()
        await Talk(recorder).call([user("hi")], [choice(assistant("a")), choice(assistant("b"), 1)], Address("run"))
        await recorder.stop()

    hone.do(one)
    assert "no reward yet" in hone("show", "run").stdout


def test_raw_export_is_one_line_a_call(hone: Hone) -> None:
    hone.do(two_runs)
    lines = [json.loads(line) for line in hone("export").stdout.splitlines()]
    assert len(lines) == 4
    assert set(lines[0]) == {
        "call_id", "parent_call_id", "trajectory_id", "trajectory_external_id", "group_id", "attribution", "dialect",
        "endpoint", "model", "version", "status", "turn_kind", "purpose", "origin", "request", "response",
        "prompt_token_ids", "choices", "tool_calls", "sampling", "usage", "reward", "parts",
        "started_at", "timings",
    }  # fmt: skip
    assert {line["reward"] for line in lines} == {0.25, 0.75}
    assert lines[0]["choices"][0]["token_ids"] == [7, 8, 9]


def test_export_can_be_narrowed_and_written_to_a_file(hone: Hone) -> None:
    hone.do(two_runs)
    assert len(hone("export", "--trajectory", "run-1").stdout.splitlines()) == 2
    assert hone("export", "--since", "2100-01-01").stdout == ""
    assert len(hone("export", "--since", "1h").stdout.splitlines()) == 4
    out = hone.data / "lines.jsonl"
    done = hone("export", "--format", "openai", "--output", str(out))
    assert done.stderr.splitlines()[-1] == "2 trajectories exported."
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["messages"][-1]["content"] for line in lines] == ["It arrives on day 1.", "It arrives on day 2."]


def test_fine_tuning_data_say_on_stderr_what_they_left_out(hone: Hone) -> None:
    hone.do(two_runs)
    done = hone("export", "--format", "openai", "--min-reward", "0.5")
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr.splitlines()[-1] == "1 trajectory exported; excluded: 1 below --min-reward."
    for form in ("raw", "tools"):
        for option in (["--include", "shadow"], ["--min-reward", "0"]):
            assert "add --format openai" in hone("export", "--format", form, *option, fails=True).output


@pytest.mark.parametrize("when", ["yesterday", "5", "h", ""])
def test_a_time_that_is_none_is_met_with_examples(hone: Hone, when: str) -> None:
    if when == "5":
        hone("export", "--since", when)  # unix seconds
    else:
        assert "use 24h, 7d" in hone("export", "--since", when, fails=True).output


def test_exported_text_is_ascii(hone: Hone) -> None:
    hone.do(two_runs)
    for form in ("raw", "openai"):
        assert hone("export", "--format", form).stdout.isascii()


def test_the_ledger_tells_why(hone: Hone) -> None:
    async def too_few(store: Store) -> str:
        group = await Rows(store).group(external_id="lonely")
        await Rows(store).trajectory(group, id="traj_lonely", state="completed")
        await close_group(Project(store, PROJECT), "lonely")
        return group

    group = hone.do(too_few)
    assert [(e["object_id"], e["code"]) for e in hone.json("ledger")] == [
        ("traj_lonely", "too_few"), (group, "too_few"),
    ]  # fmt: skip
    assert hone.json("ledger", "--counts") == {"trajectory": {"too_few": 1}, "group": {"too_few": 1}}
    assert hone.json("ledger", "--counts", "--kind", "step") == {}
    for options in ((group,), ("--kind", "group"), ("--kind", "group", "--code", "too_few"), ("--limit", "1")):
        assert len(hone.json("ledger", *options)) == 1
    assert hone.json("ledger", "--since", "2100-01-01") == hone.json("ledger", "--code", "over_age") == []
    assert "too_few" in hone("ledger").stdout
    assert "too_few" in hone("ledger", "--counts").stdout


def test_the_ledger_says_what_codes_mean_and_shows_what_was_trained_only_when_asked(hone: Hone) -> None:
    async def written(store: Store) -> None:
        rows = [LedgerRow(PROJECT, "trajectory", f"traj_{code}", code) for code in ("trained", "zero_variance")]
        async with store.write() as conn:
            await ledger.write_rows(conn, rows)

    hone.do(written)
    assert [e["code"] for e in hone.json("ledger")] == ["zero_variance"]
    assert "zero_variance: All trajectories of the group have the same reward" in hone("ledger").stdout
    for asked in (["--trained"], ["--code", "trained"], ["traj_trained"]):
        assert "trained" in [e["code"] for e in hone.json("ledger", *asked)]
    assert hone.json("ledger", "--counts")["trajectory"]["trained"] == 1


async def greedy_agent(store: Store) -> None:
    alias = await Rows(store).alias()
    recorder = Recorder(store, SETTINGS)
    await recorder.start()
    meta = {"client": "aider"}
    await Talk(recorder).call(
        [user("?")], "done", alias_id=alias.id, sampling=SamplingParameters(temperature=0.0), response_meta=meta
    )
    await recorder.stop()


def test_an_agent_of_which_nothing_is_trained_on_is_told_at_once(hone: Hone) -> None:
    assert hone.json("status")["never_trained"] == []
    hone.do(greedy_agent)
    [row] = hone.json("ledger")
    assert (row["object_kind"], row["object_id"], row["code"]) == ("client", "aider", "never_trained")
    assert row["detail"]["why"] == "temperature_below_0.1"
    assert "override = { temperature = 0.7 }" in row["detail"]["advice"]
    assert [r["object_id"] for r in hone.json("ledger", "--kind", "client")] == ["aider"]
    assert hone.json("ledger", "--kind", "group") == hone.json("ledger", "another") == []
    [told] = hone.json("status")["never_trained"]
    assert (told["client"], told["alias"], told["why"]) == ("aider", "helpdesk", "temperature_below_0.1")
    assert "aider (helpdesk)" in hone("status").stdout


async def agent_without_an_address(store: Store) -> None:
    alias = await Rows(store).alias()
    recorder = Recorder(store, SETTINGS)
    await recorder.start()
    history = [user("?")]
    for n in range(3):
        await Talk(recorder).call(list(history), f"answer {n}", alias_id=alias.id, response_meta={"client": "dspy"})
        history += [assistant(f"rewritten {n}"), user("more")]
    await recorder.stop()


def test_an_agent_without_an_address_is_told_with_the_remedy(hone: Hone) -> None:
    assert hone.json("status")["attribution_missing"] == []
    hone.do(agent_without_an_address)
    [told] = hone.json("status")["attribution_missing"]
    assert (told["client"], told["alias"], told["calls"]) == ("dspy", "helpdesk", 3)
    assert "/t/<run>/v1" in told["advice"]
    assert "attribution missing" in hone("status").stdout


def test_purposes_in_the_help_are_those_of_the_states(hone: Hone) -> None:
    assert "|".join(Purpose) in CliRunner().invoke(cli, ["trajectories", "--help"]).output.replace("\n", "")


def test_help_imports_neither_database_nor_rich() -> None:
    program = (
        "import sys\nimport recorder.commands.trajectories, recorder.commands.store\n"
        "slow = {'sqlalchemy', 'rich', 'alembic', 'pydantic', 'orjson'} & set(sys.modules)\nassert not slow, slow"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


@pytest.mark.sqlite_only("its files' bytes")
def test_the_words_of_a_deleted_run_are_in_no_file(hone: Hone) -> None:
    async def record(store: Store) -> str:
        recorder = Recorder(store, SETTINGS)
        await recorder.start()
        talk = Talk(recorder)
        await talk.call([user("an order that is kept")], "yes")
        made = await talk.call([user("where is the order from zanzibar")], "near kilimanjaro")
        while await index_calls(Project(store, PROJECT)):
            pass
        await talk.call([user("a later order")], "yes")
        while await index_calls(Project(store, PROJECT)):
            pass
        await recorder.close(PROJECT, made.attribution.trajectory.id)
        await recorder.stop()
        return made.attribution.trajectory.id

    def holding(word: bytes) -> list[str]:
        return [file.name for file in hone.data.iterdir() if word in file.read_bytes()]

    run = hone.do(record)
    assert holding(b"zanzibar") != [] != holding(b"kilimanjaro")
    hone("delete", run, "--yes")
    assert holding(b"zanzibar") == holding(b"kilimanjaro") == []
    assert holding(b"kept") != []


def test_a_run_is_deleted_by_the_id_its_caller_gave(hone: Hone) -> None:
    hone.do(two_runs)
    runs = {t["external_id"]: t["id"] for t in hone.json("trajectories")}
    name, id_ = next(iter(runs.items()))
    assert hone("delete", name, "--group", "orders", fails=True).output.startswith("Delete 1 trajectories")
    told = hone.json("delete", name, "--group", "orders", "--yes")
    assert ([one["trajectory_id"] for one in told["deleted"]], told["log_erased"]) == ([id_], True)
    assert [t["id"] for t in hone.json("trajectories")] == [other for other in runs.values() if other != id_]
    hone("delete", id_, "--yes", fails=True)
    assert [row["code"] for row in hone.json("ledger", id_)][:1] == ["deleted"]
