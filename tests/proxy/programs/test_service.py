"""What pages may see and ask of `hone up`: by name only, one job at a time, nothing without it."""

from __future__ import annotations

import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.errors import StateConflict, UnknownObject
from proxy.programs.run_file import JobRun, SupervisedProgram, write_run_file
from proxy.programs.service import ProgramService
from proxy.programs.start_request import (
    REQUEST_FILE,
    Job,
    StartRequest,
    declared_jobs,
    declared_recipes,
    drop_request,
    leave_request,
    read_request,
    requested_job,
)
from proxy.settings.hone import HoneSettings

JOBS = (Job("campaign", ("train",), "trains"), Job("evaluation-test", ("eval",), "compares"))


def running(data: Path, job: JobRun | None = None) -> ProgramService:
    """The service of a data folder for which a `hone up` runs: this process."""
    programs = [SupervisedProgram("proxy", "up"), SupervisedProgram("learn", "failed", "ended (exit status 1)")]
    write_run_file(data, proxy_url="http://a", engine_urls=["http://b"], pids={}, programs=programs, job=job)
    (data / "logs").mkdir(exist_ok=True)
    (data / "logs" / "proxy.log").write_text("hello\n")
    return ProgramService(data, JOBS, ["hidden-value"])


async def test_programs_and_logs_are_those_of_the_run_file(tmp_path: Path) -> None:
    service = running(tmp_path)
    view = await service.view()
    assert (view.supervised, [one.name for one in view.programs], list(view.logs)) == (
        True, ["proxy", "learn"], ["proxy", "learn"],
    )  # fmt: skip
    (tmp_path / "logs" / "campaign.log").write_text("a job's\n")
    assert "campaign" in (await service.view()).logs
    assert (await service.read_log("proxy")).lines == ["hello"]
    assert (await service.read_log("learn")).lines == []


@pytest.mark.parametrize("name", ["engine", "../run", "/etc/passwd", "..%2frun", "", "proxy.log"])
async def test_no_name_leads_to_another_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "run.log").write_text("not for pages\n")
    with pytest.raises(UnknownObject, match="there is no log"):
        await running(tmp_path).read_log(name)


async def test_a_run_file_with_a_path_for_a_name_gives_no_log(tmp_path: Path) -> None:
    service = running(tmp_path)
    programs = [SupervisedProgram("../run", "up")]
    write_run_file(tmp_path, proxy_url="http://a", engine_urls=["http://b"], pids={}, programs=programs)
    (tmp_path / "run.log").write_text("not for pages\n")
    assert list((await service.view()).logs) == []


async def test_without_hone_up_there_is_neither_log_nor_start(tmp_path: Path) -> None:
    for service in (ProgramService(None, JOBS), ProgramService(tmp_path, JOBS)):
        view = await service.view()
        assert (view.supervised, list(view.programs), list(view.logs)) == (False, [], [])
        assert [one.command for one in view.jobs] == ["hone train", "hone eval"]
        with pytest.raises(UnknownObject, match="hone up"):
            await service.read_log("proxy")
        with pytest.raises(StateConflict, match="run `hone train`"):
            await service.request("start", "campaign", "key_1")
    assert read_request(tmp_path) is None


async def test_a_request_waits_in_a_private_file_and_a_second_is_refused(tmp_path: Path) -> None:
    service = running(tmp_path)
    await service.request("start", "campaign", "key_1")
    assert read_request(tmp_path) == StartRequest("start", "campaign", "key_1")
    assert stat.S_IMODE((tmp_path / REQUEST_FILE).stat().st_mode) == 0o600
    with pytest.raises(StateConflict, match="not served the last request"):
        await service.request("start", "evaluation-test", "key_2")
    assert read_request(tmp_path) == StartRequest("start", "campaign", "key_1")
    drop_request(tmp_path)
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(REQUEST_FILE)] == []


async def test_one_job_runs_at_a_time_and_only_it_can_be_stopped(tmp_path: Path) -> None:
    service = running(tmp_path, JobRun("campaign", "running", "key_1", time.time()))
    for job in ("campaign", "evaluation-test"):
        with pytest.raises(StateConflict, match="campaign runs already"):
            await service.request("start", job, "key_1")
    with pytest.raises(StateConflict, match="does not run"):
        await service.request("stop", "evaluation-test", "key_1")
    await service.request("stop", "campaign", "key_1")
    assert read_request(tmp_path) == StartRequest("stop", "campaign", "key_1")


@pytest.mark.parametrize("job", ["", "rm -rf /", "campaign; id", "../campaign", "evaluation-training"])
async def test_what_is_not_declared_is_refused(tmp_path: Path, job: str) -> None:
    with pytest.raises(UnknownObject, match="declares no"):
        await running(tmp_path).request("start", job, "key_1")
    assert read_request(tmp_path) is None


def test_what_hone_toml_declares_may_be_started() -> None:
    campaign = {"agent": "agent:run", "scenarios": "tasks.jsonl", "val_scenarios": "my tasks.jsonl"}
    jobs = declared_jobs(HoneSettings.model_validate({"campaign": campaign}))
    assert {one.name: one.command for one in jobs} == {
        "campaign": "hone train",
        "evaluation-validation": 'hone eval --versions live,base --scenarios "my tasks.jsonl"',
        "evaluation-training": "hone eval --versions live,base --scenarios tasks.jsonl",
    }
    for missing in campaign.keys() - {"val_scenarios"}:
        less = {name: value for name, value in campaign.items() if name != missing}
        assert declared_jobs(HoneSettings.model_validate({"campaign": less})) == []


JUDGES = {"model": "m", "recipes": {"strict": {"rewards": [{"kind": "ruler"}]}}}
GROUP = "grp_" + "0" * 26


def test_a_trial_is_of_a_declared_recipe_on_one_group() -> None:
    settings = HoneSettings.model_validate({"judge": JUDGES})
    assert declared_recipes(settings) == ["default", "strict"]
    assert declared_recipes(HoneSettings()) == []
    asked = StartRequest("start", "trial", "key_1", "strict", GROUP)
    job = requested_job(settings, asked)
    assert job is not None
    assert job.command == f"hone score {GROUP} --judge-recipe strict"
    for wrong in ({"recipe": "lax"}, {"recipe": "--save"}, {"group": "--all"}, {"group": ""}, {"job": "score"}):
        assert requested_job(settings, replace(asked, **wrong)) is None  # type: ignore[arg-type]


async def test_a_trial_waits_as_any_other_request(tmp_path: Path) -> None:
    running(tmp_path)
    service = ProgramService(tmp_path, JOBS, (), ["default", "strict"])
    with pytest.raises(UnknownObject, match="no judge recipe 'lax': use default, strict"):
        await service.request_trial(GROUP, "lax", "key_1")
    await service.request_trial(GROUP, "strict", "key_1")
    assert read_request(tmp_path) == StartRequest("start", "trial", "key_1", "strict", GROUP)
    drop_request(tmp_path)
    running(tmp_path, JobRun("trial", "running", "key_1", time.time()))
    await service.request("stop", "trial", "key_1")
    assert read_request(tmp_path) == StartRequest("stop", "trial", "key_1")


def test_a_file_that_is_no_request_is_none(tmp_path: Path) -> None:
    for content in ("", "[]", "{}", '{"action": "run", "job": "campaign", "by": "x"}'):
        (tmp_path / REQUEST_FILE).write_text(content)
        assert read_request(tmp_path) is None


def test_leaving_a_request_in_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        leave_request(tmp_path / "gone", StartRequest("start", "campaign", "x"))
