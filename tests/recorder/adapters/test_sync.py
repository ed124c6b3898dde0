"""A host's copies follow the storage: newest first, verified, and nothing is lost that is not removed there."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import pytest

from recorder.adapters import sync as module
from recorder.adapters.folder_names import is_folder_name, order_to_fetch
from recorder.adapters.storage import AdapterStorage
from recorder.adapters.sync import AdapterSync, SyncResult, keep_in_sync
from recorder.errors import AdaptersUnavailable
from tests.recorder.adapters.published import content, make_folder


class Hours:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hours:
    return Hours()


@pytest.fixture
def shared(tmp_path: Path) -> AdapterStorage:
    return AdapterStorage(f"file://{tmp_path}/shared")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return tmp_path / "host"


def test_a_host_gets_what_is_there_and_loses_what_was_removed(
    storage: AdapterStorage, tmp_path: Path, host: Path
) -> None:
    one, two = make_folder(tmp_path / "learner"), make_folder(tmp_path / "learner", "helpdesk@2")
    storage.publish(one)
    storage.publish(two)
    sync = AdapterSync(storage, host)
    assert sync.run_pass().fetched == [two.name, one.name]
    assert sync.run_pass() == SyncResult()
    assert content(host / one.name) == content(one)
    storage.remove(one.name)
    assert sync.run_pass().removed == [one.name]
    assert [path.name for path in host.iterdir()] == [two.name]


def test_an_emptied_storage_takes_nothing_from_a_host(shared: AdapterStorage, tmp_path: Path, host: Path) -> None:
    folder = make_folder(tmp_path / "learner")
    shared.publish(folder)
    sync = AdapterSync(shared, host)
    sync.run_pass()
    shutil.rmtree(tmp_path / "shared")
    assert sync.run_pass() == SyncResult()
    assert content(host / folder.name) == content(folder)


def test_what_is_not_an_adapters_is_left_alone(shared: AdapterStorage, tmp_path: Path, host: Path) -> None:
    for name in ("doctor-abc", "helpdesk@1", ".unfinished-publish-00"):
        (host / name).mkdir(parents=True)
        (tmp_path / "shared" / "versions" / name).mkdir(parents=True)
        (tmp_path / "shared" / "versions" / name / "manifest.json").write_bytes(b"{}")
    assert AdapterSync(shared, host).run_pass() == SyncResult()
    assert len(list(host.iterdir())) == 3


def test_what_a_killed_one_left_is_removed(shared: AdapterStorage, host: Path) -> None:
    (host / f".unfinished-sync-{'0' * 16}").mkdir(parents=True)
    (host / f".unfinished-proxy-{'0' * 16}").mkdir(parents=True)
    AdapterSync(shared, host)
    assert [path.name for path in host.iterdir()] == [f".unfinished-proxy-{'0' * 16}"]


def test_a_damaged_folder_holds_up_no_other_and_is_tried_again_later(
    shared: AdapterStorage, tmp_path: Path, host: Path, clock: Hours
) -> None:
    bad, good = make_folder(tmp_path / "learner", "helpdesk@2"), make_folder(tmp_path / "learner")
    shared.publish(bad)
    shared.publish(good)
    file = tmp_path / "shared" / "versions" / bad.name / "probe.json"
    file.write_bytes(b"damaged")
    sync = AdapterSync(shared, host, clock=clock)
    result = sync.run_pass()
    assert result.fetched == [good.name]
    [sentence] = result.failed
    assert "probe.json does not match its manifest" in sentence
    assert "It is tried again in 5 s." in sentence
    assert sync.run_pass() == SyncResult()
    clock.now = 5.0
    assert "again in 10 s" in sync.run_pass().failed[0]
    file.write_bytes((bad / "probe.json").read_bytes())
    clock.now = 14.9
    assert sync.run_pass().fetched == []
    clock.now = 15.0
    assert sync.run_pass().fetched == [bad.name]


def test_a_long_pass_ends_to_look_for_newer_versions(
    shared: AdapterStorage, tmp_path: Path, host: Path, clock: Hours, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        shared.publish(make_folder(tmp_path / "learner", f"helpdesk@{number}"))
    fetch = AdapterStorage.fetch

    def slow(self: AdapterStorage, name: str, into: Path, owner: str, manifest_sha256: str | None = None) -> Path:
        clock.now += 10.0
        return fetch(self, name, into, owner, manifest_sha256)

    monkeypatch.setattr(AdapterStorage, "fetch", slow)
    sync = AdapterSync(shared, host, clock=clock)
    first = sync.run_pass(5.0)
    assert [name[:10] for name in first.fetched] == ["helpdesk@3"]
    assert not first.is_complete
    shared.publish(make_folder(tmp_path / "learner", "helpdesk@4"))
    assert [name[:10] for name in sync.run_pass(5.0).fetched] == ["helpdesk@4"]
    assert [name[:10] for name in sync.run_pass().fetched] == ["helpdesk@2", "helpdesk@1"]


async def test_a_storage_that_is_away_is_asked_again(
    shared: AdapterStorage,
    tmp_path: Path,
    host: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "recorder.adapters")
    monkeypatch.setattr(module, "FIRST_RETRY_S", 0.01)
    folder, away = make_folder(tmp_path / "learner"), [True, True]
    shared.publish(folder)
    names = shared.names

    def answer() -> set[str]:
        if away:
            away.pop()
            raise AdaptersUnavailable("s3://b could not be listed: nothing listens at its address.")
        return names()

    monkeypatch.setattr(shared, "names", answer)
    stopping = asyncio.Event()
    running = asyncio.create_task(keep_in_sync(AdapterSync(shared, host), 0.01, stopping))
    while not (host / folder.name).exists():
        await asyncio.sleep(0.01)
    stopping.set()
    await running
    sentences = [record.getMessage() for record in caplog.records]
    assert [one.partition(" The next try")[0] for one in sentences[:2]] == [
        "s3://b could not be listed: nothing listens at its address."
    ] * 2
    assert sentences[2] == f"{folder.name} is here, verified"


def test_names_are_ordered_trials_first_then_each_aliass_newest() -> None:
    digest = "0123456789ab"
    names = [f"{one}-{digest}" for one in ("a@9", "a@10", "a@trial", "b@1", "b@2", "a@8")]
    ordered = [name.removesuffix(f"-{digest}") for name in order_to_fetch([*names, "notes", "a@3"])]
    assert ordered == ["a@trial", "a@10", "b@2", "a@9", "b@1", "a@8"]
    assert not any(map(is_folder_name, ("a@3", "../a@3-0123456789ab", ".a@3-0123456789ab", "a@3-0123456789AB")))
