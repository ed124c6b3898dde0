"""The pages of versions: the line of descent, one version, and an alias that is moved, each time asked for twice."""

from __future__ import annotations

import pytest

from recorder.registry import aliases, versions
from recorder.registry.aliases import get_alias
from recorder.registry.keys import Scope, create_key
from recorder.registry.moves import VersionMove, list_moves
from recorder.store.database import Project
from recorder.store.schema import groups, trajectories
from tests.proxy.dashboard.markup import foreign
from tests.proxy.dashboard.reading import Page, opened, sent
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import PROJECT, Proxy
from tests.proxy.until import until
from tests.recorder.learning import FIGURES, Learned

pytestmark = pytest.mark.slow

HOSTILE = "</td><script>alert(1)</script>\u202e"


@pytest.fixture
def learned(proxy: Proxy) -> Learned:
    return Learned(proxy.store, proxy.alias.id)


async def refused(proxy: Proxy) -> bool:
    """Whether the proxy knows by now that it has keys."""
    return (await proxy.http.get("/hone/versions")).status_code == 401


async def newest(proxy: Proxy) -> VersionMove:
    return (await list_moves(Project(proxy.store, PROJECT), limit=1))[0]


async def test_an_alias_without_versions_says_how_one_comes(proxy: Proxy) -> None:
    page = await opened(proxy.http, "/hone/versions")
    assert f"{proxy.url}/v1" in page.text
    assert page.images == {}


async def test_each_version_stands_in_its_line_with_what_it_was_worth(proxy: Proxy, learned: Learned) -> None:
    await learned.accepted(1)
    spoilt = await learned.step(2)
    await versions.reject_version(proxy.store, spoilt.id, f"kl: {HOSTILE}", lessons="left_out", who="controller")
    await learned.gated(3, absolute=False)
    page = await opened(proxy.http, "/hone/versions?alias=helpdesk")
    waiting, live = page.row("helpdesk@3"), page.row("helpdesk@1")
    worth = "75% 51% to 90% success, 16 attempts, held-out scenarios of its gate"
    assert waiting[1:6] == ["gated", "helpdesk@1", worth, "–", "1 group, 1 trajectory step 3"]
    assert live[1] == "live"
    out = page.row("helpdesk@2 not an ancestor")
    assert (out[1], "\u202e" in out[6], "alert(1)" in out[6]) == ("rejected", False, True)
    assert live[4] == "0.5 0.171 to 0.829 4 trajectories in 2 groups, relative to its groups"
    # what is relative to its groups is not drawn beside other versions
    assert [alt.partition(":")[0] for alt in page.images.values()] == ["Success and reward of each version"]
    assert page.row("@3")[1:] == ["0.75", "0.505 to 0.898", "–", "–"]
    assert page.row("@1")[3:] == ["–", "–"]
    assert page.row("@0")[3:] == ["0.5", "–"]  # of one group
    assert "/hone/versions/helpdesk%403" in page.links


async def test_a_version_says_that_its_step_computed_on_a_copy_of_the_base(proxy: Proxy, learned: Learned) -> None:
    await learned.accepted(1, metrics={"reward_mean": 0.9, "computed_on": "nf4"})
    await learned.accepted(2, metrics={"reward_mean": 0.9})
    told = "a copy of the base in nf4; it is served on the base itself"
    assert told in (await opened(proxy.http, "/hone/versions/helpdesk@1")).text
    assert told not in (await opened(proxy.http, "/hone/versions/helpdesk@2")).text


async def test_every_face_shows_the_same_reward(proxy: Proxy, learned: Learned) -> None:
    await learned.accepted(1, metrics={"reward_mean": 0.9})
    for number, values in ((2, (0.25, 0.5)), (3, (0.5, 0.75))):
        await learned.group(number)
        await learned.set_rewards(number, *values)
    await learned.group(4, purpose="eval")  # a pair of the gate
    await learned.set_rewards(4, 0.0, 0.0)
    [told] = [
        one for one in (await proxy.http.get("/hone/v1/status")).json()["rewards"] if one["version"] == "helpdesk@1"
    ]
    assert (told["trajectories"], told["mean"]) == (4, 0.5)
    listed = {one["name"]: one["reward"] for one in (await proxy.http.get("/hone/v1/versions")).json()}
    assert listed["helpdesk@1"] == told
    assert (await proxy.http.get("/hone/v1/versions/helpdesk@1")).json()["version"]["reward"] == told
    assert 'hone_reward_mean{alias="helpdesk",version="helpdesk@1"} 0.5' in (await proxy.http.get("/metrics")).text
    of_page = "0.5 0 to 1 4 trajectories in 2 groups"
    assert (await opened(proxy.http, "/hone/versions")).row("helpdesk@1")[4] == of_page
    assert of_page in " ".join((await opened(proxy.http, "/hone/versions/helpdesk@1")).text.split())


async def test_a_long_line_is_told_in_parts(proxy: Proxy, learned: Learned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.dashboard.pages.versions.VERSIONS", 2)
    for number in (1, 2):
        await learned.accepted(number)
    page = await opened(proxy.http, "/hone/versions")
    assert [row[0] for row in page.rows if row[0].startswith("●")] == ["● helpdesk@2", "● helpdesk@1"]
    older = await opened(proxy.http, next(link for link in page.links if "before=" in link))
    assert [row[0] for row in older.rows if row[0].startswith("●")] == ["● helpdesk@0"]


async def test_a_version_tells_of_its_step_its_groups_and_its_tasks_beside_its_parents(
    proxy: Proxy, learned: Learned
) -> None:
    await learned.accepted(1, implicit_key="task")
    await learned.accepted(2, implicit_key="task")
    await learned.group(3, implicit_key="task")
    page = await opened(proxy.http, "/hone/versions/helpdesk@2")
    assert page.row("an implicit task")[1:] == ["0.5 order-2 0.5 over 2, best 1", "0.5 order-3 0.5 over 2, best 1", "0"]
    assert page.row("order-2")[1:] == ["trained", "1 of 2", "0.5"]
    assert "/hone/trajectories?trained_by=helpdesk%402&origin=live" in page.links
    assert "1 trajectory: It completed, and no reason is recorded. (completed)" in page.of("li")
    assert "train 3.5 s" in page.text
    assert {"/hone/trajectories?version=helpdesk%402", "/hone/groups/grp_0002", "/hone/versions/helpdesk%401"} <= set(
        page.links
    )
    other = await opened(proxy.http, "/hone/versions/helpdesk@2?compare=helpdesk@0")
    assert "by helpdesk@0" in [cell for row in other.rows for cell in row]
    assert "No version" not in (await opened(proxy.http, "/hone/versions/helpdesk@9", status=404)).text


async def test_the_answers_of_both_versions_to_one_task_are_set_side_by_side(
    proxy: Proxy, learned: Learned, engine: FakeEngine
) -> None:
    for name in ("old", "new"):  # no engine of this test holds an adapter: rows say afterwards whose they are
        engine.default = Script([words(f"It is {name} <b>{HOSTILE}</b>")])
        await proxy.chat(path=f"/g/{name}/t/{name}")
    base, version = await learned.live(), await learned.accepted(1)
    for name, by in (("old", base), ("new", version.id)):
        group = (await proxy.http.get(f"/hone/v1/groups/{name}")).json()["id"]
        await learned.rows.set(groups, group, implicit_key="task", version_id=by)
    page = await opened(proxy.http, "/hone/versions/helpdesk@1")
    assert "Open a task to see the answers of both versions." in page.text
    [link] = [link for link in page.links if "task=" in link]
    told = " ".join((await opened(proxy.http, link)).text.split())
    assert "Where is order 4821?" in told
    first, second = told.index("It is old <b></td><script>alert(1)"), told.index("It is new <b></td><script>alert(1)")
    assert first < second
    await opened(proxy.http, "/hone/versions/helpdesk@1?task=another", status=404)


async def judged_pair(proxy: Proxy, learned: Learned, engine: FakeEngine, number: int, own: str, other: str) -> None:
    """A pair of the gate of helpdesk@1: its answer, which a judge prefers, and its parent's, to one recorded task."""
    for name, text in (("other", other), ("own", own)):
        engine.default = Script([words(text)])
        await proxy.chat(path=f"/g/pair-{number}/t/{name}")
    group = (await proxy.http.get(f"/hone/v1/groups/pair-{number}")).json()["id"]
    base = await learned.live()
    for member in await learned.rows.members(group):
        is_own = (await learned.rows.get(trajectories, member))["external_id"] == "own"
        values = {"version_id": f"own-{number}" if is_own else base, "purpose": "eval", "origin": "shadow"}
        await learned.rows.set(trajectories, member, state="completed", **values)
    await learned.rows.set(groups, group, state="ready", ready_at=1.0)
    await learned.rows.score(group)


async def test_a_version_shows_the_held_out_tasks_that_it_won_with_both_transcripts(
    proxy: Proxy, learned: Learned, engine: FakeEngine
) -> None:
    await judged_pair(
        proxy, learned, engine, 0, f"It is at the new depot {HOSTILE}", f"It is at the old depot {HOSTILE}"
    )
    version = await learned.gated(1, figures={**FIGURES, "times_as_long": 1.06})
    async with proxy.store.write() as conn:
        own = trajectories.c.version_id == "own-0"
        await conn.execute(trajectories.update().where(own).values(version_id=version.id))
        await conn.execute(groups.update().where(groups.c.external_id == "pair-0").values(version_id=version.id))
    answer = await proxy.http.get("/hone/versions/helpdesk@1")
    assert not foreign(answer.text)
    page = Page(answer.text)
    sentence = "At 1 recorded task of its gate's judged pairs, it does better than helpdesk@0 at 1, worse at 0, and"
    assert sentence in page.text
    assert page.row("Where is order 4821?")[1:4] == ["▲ better 100%", "0% of 1", "100% of 1"]
    assert page.of("del") == ["old"]
    assert page.of("ins") == ["new"]
    assert "\u202e" not in answer.text
    assert "Its answers are 6 % longer than the live version's." in page.text
    [link] = {link for link in page.links if "pair=" in link}
    assert "Before and after" in (await opened(proxy.http, link)).text
    await opened(proxy.http, "/hone/versions/helpdesk@1?pair=another", status=404)
    asked = await opened(proxy.http, "/hone/versions/move?do=promote&version=helpdesk@1")
    assert "What is known about helpdesk@1" in asked.of("h2")
    assert [said.startswith(sentence) for said in asked.of("li")].count(True) == 1
    assert "Its answers are 6 % longer than the live version's." in asked.of("li")
    told = (await proxy.http.get("/hone/v1/versions/helpdesk@1")).json()
    assert [one["text"] for one in told["evidence"]] == [said for said in asked.of("li") if said.endswith(".")]
    assert told["held_out"][0]["won"][0]["task"] == "Where is order 4821?"


async def test_a_decision_is_shown_with_its_evidence_and_the_limits_that_held_then(
    proxy: Proxy, learned: Learned
) -> None:
    spoilt = await learned.step(1)
    measured = {"figures": {"times_as_long": 4.5}, "limits": {"length_times": 4.0}}
    why = f"length: its answers are long {HOSTILE}"
    await versions.reject_version(proxy.store, spoilt.id, why, lessons="left_out", who="controller", **measured)
    limit = "Its answers are 4.5 × as long as the live version's; limit 4 ×, in either direction."
    for path in ("/hone/versions", "/hone/versions/helpdesk@1"):
        answer = await proxy.http.get(path)
        assert not foreign(answer.text)
        assert f"{limit} ✗ not kept" in Page(answer.text).of("li")
    [move] = (await proxy.http.get("/hone/v1/versions/moves")).json()
    assert (move["limits"], move["evidence"][1]) == ({"length_times": 4.0}, {"text": limit, "within": False})


async def test_promoting_is_asked_twice_and_written_down_with_why(proxy: Proxy, learned: Learned) -> None:
    version = await learned.gated(1)
    line = await opened(proxy.http, "/hone/versions")
    asked = Page((await sent(proxy.http, line.form(do="promote", version="helpdesk@1"), 200)).text)
    assert (asked.row("from")[1], asked.row("to")[1]) == ("helpdesk@0", "helpdesk@1")
    assert asked.row("to")[3].startswith("75% 51% to 90%")
    assert await learned.live() != version.id
    answer = await sent(proxy.http, asked.form(do="promote"), why="the gate likes it")
    assert answer.headers["location"] == "/hone/versions?alias=helpdesk"
    assert await learned.live() == version.id
    move = await newest(proxy)
    assert (move.move, move.who, move.why) == ("promote", "somebody on this machine", "the gate likes it")
    assert "the gate likes it" in (await opened(proxy.http, "/hone/versions")).text


async def test_what_moved_since_it_was_asked_for_is_asked_again(proxy: Proxy, learned: Learned) -> None:
    await learned.accepted(1)
    asked = await opened(proxy.http, "/hone/versions/move?do=rollback&alias=helpdesk")
    assert "Roll back to helpdesk@0?" in asked.text
    second = await learned.accepted(2)
    answer = await sent(proxy.http, asked.form(do="rollback"), 409)
    assert "decide there" in answer.text
    assert await learned.live() == second.id


async def test_rolling_back_goes_to_what_was_live_before(proxy: Proxy, learned: Learned) -> None:
    first = await learned.accepted(1)
    await learned.accepted(2)
    asked = await opened(proxy.http, "/hone/versions/move?do=rollback&alias=helpdesk")
    await sent(proxy.http, asked.form(do="rollback"))
    assert await learned.live() == first.id
    assert (await newest(proxy)).move == "rollback"


async def test_a_canary_gets_its_share_and_another_and_is_taken_away(proxy: Proxy, learned: Learned) -> None:
    version = await learned.gated(1)
    for share in ("25", "50"):
        form = (await opened(proxy.http, "/hone/versions")).form(do="canary", version="helpdesk@1")
        asked = Page((await sent(proxy.http, form, 200, share=share)).text)
        await sent(proxy.http, asked.form(do="canary"))
        alias = await get_alias(Project(proxy.store, PROJECT), "helpdesk")
        assert (alias.canary_version_id, alias.canary_share) == (version.id, int(share) / 100)
    asked = await opened(proxy.http, "/hone/versions/move?do=rollback&alias=helpdesk")
    await sent(proxy.http, asked.form(do="rollback"))
    assert (await get_alias(Project(proxy.store, PROJECT), "helpdesk")).canary_version_id is None


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("do=delete&version=helpdesk@0", 400),
        ("do=canary&version=helpdesk@0&share=nan", 400),
        ("do=canary&version=helpdesk@0&share=101", 400),
        ("do=promote&version=helpdesk@7", 404),
        ("do=promote&version=nobody@1", 404),
        ("do=rollback&alias=helpdesk", 409),
    ],
)
async def test_what_cannot_be_is_refused_before_it_is_asked(proxy: Proxy, query: str, status: int) -> None:
    await opened(proxy.http, f"/hone/versions/move?{query}", status)


async def test_a_version_that_did_not_pass_its_gate_is_not_made_live(proxy: Proxy, learned: Learned) -> None:
    await learned.step(1)
    line = await opened(proxy.http, "/hone/versions")
    assert "promote" not in [form.fields.get("do") for form in line.forms]
    asked = await opened(proxy.http, "/hone/versions/move?do=promote&version=helpdesk@1")
    await sent(proxy.http, asked.form(do="promote"), 409)
    assert await learned.live() == proxy.alias.live_version_id


async def test_who_may_only_read_sees_no_forms_and_moves_nothing(proxy: Proxy, learned: Learned) -> None:
    await learned.gated(1)
    _, reader = await create_key(Project(proxy.store, PROJECT), "reader", {Scope.READ})
    admin, secret = await create_key(Project(proxy.store, PROJECT), "admin", {Scope.ADMIN})
    await until(lambda: refused(proxy))
    proxy.http.headers["authorization"] = f"Bearer {reader}"
    page = await opened(proxy.http, "/hone/versions")
    assert [form.action for form in page.forms if "move" in form.action] == []
    await opened(proxy.http, "/hone/versions/move?do=promote&version=helpdesk@1", status=403)
    proxy.http.headers["authorization"] = f"Bearer {secret}"
    asked = await opened(proxy.http, "/hone/versions/move?do=promote&version=helpdesk@1")
    await sent(proxy.http, asked.form(do="promote"))
    assert (await newest(proxy)).who == admin.id


async def test_an_alias_whose_name_has_slashes_has_all_its_pages(proxy: Proxy) -> None:
    await aliases.ensure_alias(Project(proxy.store, PROJECT), "org/a:b~c", "base-model", "fingerprint")
    line = await opened(proxy.http, "/hone/versions?alias=org/a:b~c")
    link = next(link for link in line.links if link.startswith("/hone/versions/"))
    assert "org/a:b~c@0" in (await opened(proxy.http, link)).text
    assert (await proxy.http.get("/hone/v1/versions/org/a:b~c@0")).json()["version"]["name"] == "org/a:b~c@0"
    assert (await proxy.http.options("/hone/v1/versions/org/a:b~c@0")).headers["allow"] == "GET, OPTIONS"


async def test_the_same_is_given_as_json(proxy: Proxy, learned: Learned) -> None:
    await learned.accepted(1)
    [one, base] = (await proxy.http.get("/hone/v1/versions?alias=helpdesk")).json()
    assert (one["name"], one["role"], one["measure"]["value"], one["trained"]["trajectories"]) == (
        "helpdesk@1",
        "live",
        0.75,
        1,
    )
    assert (base["in_line"], base["trained"]) == (True, None)
    assert (base["measure"], base["reward"]["trajectories"], base["reward"]["mean"]) == (None, 2, 0.5)
    assert one["reward"] is None
    whole = (await proxy.http.get("/hone/v1/versions/helpdesk@1")).json()
    assert (whole["compared_with"], [move["move"] for move in whole["moves"]]) == ("helpdesk@0", ["gate", "gated"])
    assert (await proxy.http.get("/hone/v1/versions/helpdesk@9")).status_code == 404
