"""Home: what is in service, what is wrong, the newest runs; on an empty store what to do next."""

from __future__ import annotations

import re

from recorder.registry.aliases import ensure_alias
from recorder.registry.replicas import report_replica
from recorder.store.database import Project, Store
from tests.proxy.dashboard.reading import opened
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import ALIAS, PROJECT, serving
from tests.recorder.learning import Learned
from tests.recorder.rows import Rows


async def test_on_an_empty_store_it_says_the_very_lines_that_record_something(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        page = await opened(proxy.http, "/hone/")
        assert f"export OPENAI_BASE_URL={proxy.url}/v1" in page.text
        assert '"model": "helpdesk"' in page.text
        assert "/hone/versions/helpdesk%400" in page.links
        assert page.text.index("Start here") < page.text.index("Is it learning?")
        assert "Nothing is recorded yet: point an agent at this proxy, with the model helpdesk." in page.text


async def test_it_shows_what_is_in_service_what_is_wrong_and_the_newest_runs(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        await report_replica(
            Project(store, PROJECT), "http://gone", state="down", loaded=[], detail="refused <script>x</script>"
        )
        await proxy.chat("Where is <b>order</b> 4821?", path="/g/refunds/t/one")
        page = await opened(proxy.http, "/hone/")
        assert "engine http://gone is down: refused <script>x</script>" in page.text
        assert "Where is <b>order</b> 4821?" in page.text
        assert "/hone/#engines" in page.links
        assert '<div id="live-none" hidden>' in (await proxy.http.get("/hone/")).text
        assert any(link.startswith("/hone/trajectories/") for link in page.links)
        assert page.tags.count("script") == 2  # of our own files
        assert "b" not in page.tags


async def test_it_answers_three_questions_with_the_figures_of_the_api(store: Store) -> None:
    alias = await ensure_alias(Project(store, PROJECT), ALIAS, "base-model", "fingerprint")
    learned = Learned(store, alias.id)
    campaign = await learned.campaign()
    await learned.group(10, implicit_key="task")
    await learned.set_rewards(10, 0.1, 0.1)
    first = await learned.accepted(1)
    await learned.group(11, implicit_key="task")
    await learned.set_rewards(11, 0.9, 0.9)
    await learned.validated(campaign, 0, "helpdesk@0", 0.34, 50)
    await learned.validated(campaign, 1, first.name, 0.96, 50)
    await learned.gated(2)
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        page = await opened(proxy.http, "/hone/")
        answers = (await proxy.http.get("/hone/v1/status")).json()["answers"]
    told = [one["text"] for name in ("learning", "healthy", "needs") for one in answers[name]]
    assert told[0].startswith("Held-out: helpdesk@1 has the success rate 96 %")
    for text in told:
        assert re.sub(r"since [\d:]+", "", text.replace("`", "")) in re.sub(r"since [\d:]+", "", page.text)
    assert "helpdesk@2 is gated since" in told[-1]
    assert "/hone/versions/helpdesk@2" in page.links
    assert "/hone/versions/helpdesk%401?compare=helpdesk%400&task=task#answers" in page.links
    assert "reward 0.1 by helpdesk@0, 0.9 by helpdesk@1" in page.text
    assert page.tags.count("polyline") == 2  # held-out, and in traffic


async def test_the_newest_trajectories_are_of_agents(store: Store) -> None:
    rows = Rows(store)
    for purpose, origin in (("eval", "shadow"), ("train", "shadow"), ("eval", "campaign"), ("train", "campaign")):
        await rows.trajectory(id=f"traj_{purpose}_{origin}", origin=origin, purpose=purpose)
    await rows.trajectory(id="traj_own", origin="live", purpose="none")
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        page = await opened(proxy.http, "/hone/")
    shown = {link.rpartition("/")[2] for link in page.links if link.startswith("/hone/trajectories/")}
    assert shown == {"traj_train_campaign", "traj_own"}
