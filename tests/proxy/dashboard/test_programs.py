"""The page Programs, logs and starting a job: for admins alone, by name alone, and hostile lines are text."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.dashboard.pages.programs import fit_lines
from proxy.programs.run_file import JobRun, SupervisedProgram, write_run_file
from proxy.programs.service import ProgramService
from proxy.programs.start_request import Job, StartRequest, drop_request, read_request
from recorder.registry import keys
from recorder.registry.keys import SOMEBODY
from recorder.store.database import Project, Store
from tests.proxy.dashboard.reading import Page, opened
from tests.proxy.dashboard.test_group import three
from tests.proxy.dashboard.xss import CORPUS
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, Proxy, serving

SECRET = "hidden-value-of-the-judge"
JOBS = (Job("campaign", ("train",), "Trains."), Job("evaluation-test", ("eval", "--scenarios", "t.jsonl"), "Compares."))


def write(data: Path, job: JobRun | None = None) -> None:
    programs = [SupervisedProgram("proxy", "up"), SupervisedProgram("learn", "failed", "<b>ended</b>")]
    write_run_file(data, proxy_url="http://a", engine_urls=["http://b"], pids={}, programs=programs, job=job)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "proxy.log").write_text("ready\n")
    return tmp_path


@pytest.fixture
async def supervised(store: Store, engine: FakeEngine, data: Path) -> AsyncIterator[Proxy]:
    """A proxy under a `hone up`: this process."""
    write(data)
    async with serving(store, engine, programs=ProgramService(data, JOBS, [SECRET], ["default", "strict"])) as running:
        yield running


async def test_the_page_lists_programs_and_leads_to_their_logs(supervised: Proxy) -> None:
    page = await opened(supervised.http, "/hone/programs")
    assert ["learn", "failed", "<b>ended</b>", "Log of learn"] in page.rows
    assert "hone train" in page.text
    for path in ("/hone/", "/hone/training"):
        assert 'href="/hone/programs' in (await supervised.http.get(path)).text
    log = await opened(supervised.http, "/hone/programs/proxy")
    assert "ready" in log.text
    assert (await supervised.http.get("/hone/programs/engine")).status_code == 404
    assert (await supervised.http.get("/hone/programs/..%2Frun")).status_code == 404


async def test_without_hone_up_the_page_says_so_and_shows_the_command(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine, programs=ProgramService(None, JOBS)) as proxy:
        page = await opened(proxy.http, "/hone/programs")
        assert "does not run under hone up" in page.text
        assert "hone eval --scenarios t.jsonl" in page.text
        assert [form for form in page.forms if "jobs" in form.action] == []
        assert (await proxy.http.get("/hone/programs/proxy")).status_code == 404
        answer = await proxy.http.post("/hone/v1/programs/jobs", json={"job": "campaign"})
        assert (answer.status_code, "run `hone train`" in answer.json()["detail"]) == (409, True)
        assert (await proxy.http.get("/hone/v1/programs")).json()["supervised"] is False


async def test_hostile_lines_are_text_and_keys_are_masked(supervised: Proxy, data: Path) -> None:
    hostile = [text.replace("\n", " ") for text in CORPUS]
    (data / "logs" / "proxy.log").write_text("\n".join([*hostile, f"the key {SECRET} is wrong", ""]), "utf-8")
    answer = await supervised.http.get("/hone/programs/proxy")
    page = Page(answer.text)
    assert SECRET not in answer.text
    assert "the key *** is wrong" in page.text
    assert [dict(attrs)["src"] for tag, attrs in page.elements if tag == "script"] == [
        "/hone/static/hone.js", "/hone/static/log.js",
    ]  # fmt: skip
    assert not {tag for tag, _ in page.elements} & {"img", "iframe", "object", "svg", "style"}
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on") or name == "style"]
    assert (await supervised.http.get("/hone/v1/programs/proxy/log")).text.count(SECRET) == 0


async def test_new_lines_are_given_to_the_pages_script_and_by_the_api(supervised: Proxy, data: Path) -> None:
    first = (await supervised.http.get("/hone/v1/programs/proxy/log")).json()
    assert first == {"lines": ["ready"], "next": 6, "skipped": False}
    with (data / "logs" / "proxy.log").open("a") as file:
        file.write(f"<script>alert(1)</script> {SECRET}\n")
    for path in ("/hone/programs/proxy/lines", "/hone/v1/programs/proxy/log"):
        answer = await supervised.http.get(f"{path}?after=6")
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["lines"] == ["<script>alert(1)</script> ***"]
        assert (await supervised.http.get(f"{path}?after=-1")).status_code == 400
    assert (await supervised.http.get("/hone/v1/programs/proxy/log?lines=1001")).status_code == 400


async def test_a_form_starts_and_stops_a_job(supervised: Proxy, data: Path) -> None:
    page = await opened(supervised.http, "/hone/programs")
    [form] = [form for form in page.forms if form.fields.get("job") == "campaign"]
    answer = await supervised.http.post(form.action, data=form.fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/hone/programs?asked=start-campaign")
    assert read_request(data) == StartRequest("start", "campaign", SOMEBODY)
    assert (await supervised.http.post(form.action, data=form.fields)).status_code == 409
    assert "was asked" in (await opened(supervised.http, "/hone/programs?asked=start-campaign")).text
    drop_request(data)
    write(data, JobRun("campaign", "running", SOMEBODY, time.time()))
    page = await opened(supervised.http, "/hone/programs")
    [form] = [form for form in page.forms if "job" in form.fields]
    assert form.fields | {"csrf": ""} == {"csrf": "", "job": "campaign", "action": "stop"}
    assert (await supervised.http.post(form.action, data=form.fields)).status_code == 303
    assert read_request(data) == StartRequest("stop", "campaign", SOMEBODY)


async def test_a_form_names_a_job_and_nothing_else(supervised: Proxy, data: Path) -> None:
    [form, *_] = [one for one in (await opened(supervised.http, "/hone/programs")).forms if "job" in one.fields]
    for fields, status in (
        ({"job": "campaign; id"}, 404),
        ({"action": "run"}, 400),
        ({"job": "../campaign"}, 404),
    ):
        assert (await supervised.http.post(form.action, data=form.fields | fields)).status_code == status
    body = {"job": "campaign", "arguments": ["--agent", "evil"]}
    assert (await supervised.http.post("/hone/v1/programs/jobs", json=body)).status_code == 400
    assert read_request(data) is None


async def test_all_of_it_needs_admin(store: Store, engine: FakeEngine, data: Path) -> None:
    write(data)
    project = Project(store, PROJECT)
    made = {scope: (await keys.create_key(project, scope, [scope]))[1] for scope in ("read", "admin")}
    async with serving(store, engine, programs=ProgramService(data, JOBS)) as proxy:
        for path in ("/hone/programs", "/hone/programs/proxy", "/hone/programs/proxy/lines?after=0",
                     "/hone/v1/programs", "/hone/v1/programs/proxy/log"):  # fmt: skip
            for scope, status in (("read", 403), ("admin", 200)):
                headers = {"authorization": f"Bearer {made[scope]}"}
                assert (await proxy.http.get(path, headers=headers)).status_code == status, (path, scope)
        for scope, status in (("read", 403), ("admin", 202)):
            headers = {"authorization": f"Bearer {made[scope]}"}
            answer = await proxy.http.post("/hone/v1/programs/jobs", json={"job": "campaign"}, headers=headers)
            assert answer.status_code == status
        home = await proxy.http.get("/hone/", headers={"authorization": f"Bearer {made['read']}"})
        assert "/hone/programs" not in home.text


def test_the_newest_lines_that_fit_are_shown() -> None:
    assert fit_lines(["a" * 60, "&" * 10, "b"], room=60) == ["&" * 10, "b"]
    assert fit_lines(["x"] * 1000) == ["x"] * 1000
    assert len("".join(fit_lines(["<" * 2000] * 1000)) * 4) < 130_000


async def test_a_recipe_is_tried_on_a_group_by_form_and_by_the_api(supervised: Proxy, data: Path) -> None:
    group, _ = await three(supervised.store)
    page = await opened(supervised.http, f"/hone/groups/{group}")
    [form] = [form for form in page.forms if form.action.endswith("/trial")]
    answer = await supervised.http.post(form.action, data=form.fields | {"recipe": "strict"})
    assert answer.headers["location"] == f"/hone/groups/{group}?tried=strict#trial"
    asked = StartRequest("start", "trial", SOMEBODY, "strict", group)
    assert read_request(data) == asked
    drop_request(data)
    assert (await supervised.http.post(form.action, data=form.fields | {"recipe": "--save"})).status_code == 404
    address = "/hone/v1/programs/trials"
    assert (await supervised.http.post(address, json={"group": "nothing", "recipe": "strict"})).status_code == 404
    assert (await supervised.http.post(address, json={"group": group, "recipe": "strict"})).status_code == 202
    assert read_request(data) == asked
