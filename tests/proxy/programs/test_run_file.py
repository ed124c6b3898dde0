"""run.json is believed while its writer lives, and only then."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.programs.run_file import (
    RUN_FILE,
    JobRun,
    SupervisedProgram,
    find_job,
    find_stale_run,
    list_programs,
    read_run_file,
    remove_run_file,
    write_run_file,
)
from trainer.runtime.services import running_proxy

URL = "http://127.0.0.1:8700"


def write(data: Path) -> None:
    write_run_file(data, proxy_url=URL, engine_urls=["http://a:1", "http://b:2"], pids={"proxy": 7})


def test_what_runs_is_found_until_it_is_taken_away(tmp_path: Path) -> None:
    assert read_run_file(tmp_path) is None
    write(tmp_path)
    found = read_run_file(tmp_path)
    assert found is not None
    assert found.pop("written_at")
    assert found == {
        "proxy_url": URL,
        "engine_url": "http://a:1",
        "engine_urls": ["http://a:1", "http://b:2"],
        "pids": {"up": os.getpid(), "proxy": 7},
        "programs": [],
        "job": None,
    }
    remove_run_file(tmp_path)
    assert read_run_file(tmp_path) is None
    remove_run_file(tmp_path)  # a second time is no error
    assert list(tmp_path.iterdir()) == []


def test_programs_and_the_job_are_read_as_they_were_written(tmp_path: Path) -> None:
    programs, job = [SupervisedProgram("learn", "failed", "ended")], JobRun("campaign", "running", "key_1", 3.0)
    write_run_file(tmp_path, proxy_url=URL, engine_urls=["http://a:1"], pids={}, programs=programs, job=job)
    found = read_run_file(tmp_path)
    assert found is not None
    assert (list_programs(found), find_job(found)) == (programs, job)


def test_a_file_of_an_earlier_hone_has_neither() -> None:
    assert (list_programs({}), find_job({})) == ([], None)


def test_it_is_the_owners_alone_also_where_its_draft_was_not(tmp_path: Path) -> None:
    (tmp_path / "run.new").write_text("")
    (tmp_path / "run.new").chmod(0o644)
    write(tmp_path)
    assert stat.S_IMODE((tmp_path / RUN_FILE).stat().st_mode) == 0o600


def test_the_trainer_finds_the_proxy_in_it(tmp_path: Path) -> None:
    write(tmp_path)
    assert running_proxy(tmp_path) == URL


def test_one_whose_writer_is_gone_is_not_believed(tmp_path: Path) -> None:
    write(tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    path = tmp_path / RUN_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pids": {"up": ended.pid}}))
    assert read_run_file(tmp_path) is None


def test_one_of_a_killed_writer_is_told_apart_and_so_is_a_later_process_of_its_number(tmp_path: Path) -> None:
    assert find_stale_run(tmp_path) is None
    write(tmp_path)
    assert find_stale_run(tmp_path) is None
    path = tmp_path / RUN_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"written_at": 1000.0}))  # before this process began
    assert read_run_file(tmp_path) is None
    left = find_stale_run(tmp_path)
    assert left is not None
    assert left["proxy_url"] == URL


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pids": 3}', '{"pids": {"up": "x"}}', "{"])
def test_a_broken_one_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / RUN_FILE).write_text(text)
    assert read_run_file(tmp_path) is None
