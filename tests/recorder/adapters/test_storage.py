"""Adapters are written once to a folder or a bucket, and come back whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import stat
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from examples.running.programs import free_ports
from recorder.adapters.storage import AdapterStorage
from recorder.errors import AdapterDamaged, AdaptersUnavailable, NotFound
from recorder.processes import durable_folders
from tests.recorder.adapters.published import content, make_folder
from tests.recorder.adapters.s3_server import ACCESS_KEY, SECRET_KEY, S3Server


def left_over(into: Path) -> list[str]:
    return [one.name for one in into.iterdir()] if into.exists() else []


def overwrite(storage: AdapterStorage, path: str, raw: bytes) -> None:
    """Change a file behind the storage's back."""
    fs, root = storage._open()
    fs.pipe_file(f"{root}/versions/{path}", raw)


# --- written once


def test_a_folder_comes_back_as_it_was_written(storage: AdapterStorage, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "learner")
    assert storage.names() == set()
    storage.publish(folder)
    assert storage.names() == {folder.name}
    fetched = storage.fetch(folder.name, tmp_path / "engine", "sync")
    assert fetched == tmp_path / "engine" / folder.name
    assert content(fetched) == content(folder)
    assert left_over(tmp_path / "engine") == [folder.name]


def test_what_is_there_is_not_written_again(storage: AdapterStorage, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "learner")
    storage.publish(folder)
    overwrite(storage, f"{folder.name}/adapter_config.json", b"changed")
    storage.publish(folder)
    fs, root = storage._open()
    assert fs.cat_file(f"{root}/versions/{folder.name}/adapter_config.json") == b"changed"


def test_another_folder_of_its_name_is_an_error(storage: AdapterStorage, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "learner")
    storage.publish(folder)
    overwrite(storage, f"{folder.name}/manifest.json", b'{"files": {}}')
    with pytest.raises(AdapterDamaged, match="has another manifest than"):
        storage.publish(folder)


def test_two_writers_of_one_version_leave_it_whole(url: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "learner")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: AdapterStorage(url).publish(folder), range(2)))
    assert content(AdapterStorage(url).fetch(folder.name, tmp_path / "engine", "sync")) == content(folder)


def test_two_hosts_processes_fetch_one_folder(storage: AdapterStorage, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "learner")
    storage.publish(folder)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda owner: storage.fetch(folder.name, tmp_path / "engine", owner), ("a", "b")))
    assert found == [tmp_path / "engine" / folder.name] * 2
    assert left_over(tmp_path / "engine") == [folder.name]


def test_a_half_written_folder_is_not_there(
    storage: AdapterStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner that dies while it writes; the next try completes it."""
    folder = make_folder(tmp_path / "learner")

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        put = AdapterStorage._put

        def put_all_but_the_manifest(self: AdapterStorage, file: Path, path: str) -> None:
            (die if file.name == "manifest.json" else put)(self, file, path)

        patched.setattr(AdapterStorage, "_put", put_all_but_the_manifest)
        patched.setattr(durable_folders, "finish_folder", die)
        with pytest.raises(KeyboardInterrupt):
            storage.publish(folder)
    assert storage.names() == set()
    with pytest.raises(NotFound, match="is not there"):
        storage.fetch(folder.name, tmp_path / "engine", "sync")
    storage.publish(folder)
    assert storage.names() == {folder.name}


# --- verified


def cut(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def flipped(raw: bytes) -> bytes:
    return bytes([raw[0] ^ 1]) + raw[1:]


@pytest.mark.parametrize("damage", [cut, flipped])
def test_a_damaged_file_never_becomes_visible(
    damage: Callable[[bytes], bytes], storage: AdapterStorage, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path / "learner")
    storage.publish(folder)
    raw = (folder / "adapter_model.safetensors").read_bytes()
    overwrite(storage, f"{folder.name}/adapter_model.safetensors", damage(raw))
    with pytest.raises(AdapterDamaged, match=r"adapter_model\.safetensors does not match its manifest"):
        storage.fetch(folder.name, tmp_path / "engine", "sync")
    assert left_over(tmp_path / "engine") == []


def test_a_manifest_that_is_not_its_names_is_refused(storage: AdapterStorage, tmp_path: Path) -> None:
    folder, other = make_folder(tmp_path / "learner"), make_folder(tmp_path / "learner", salt="other")
    storage.publish(folder)
    for file, raw in content(other).items():
        overwrite(storage, f"{folder.name}/{file}", raw)
    with pytest.raises(AdapterDamaged, match="is not the manifest that"):
        storage.fetch(folder.name, tmp_path / "engine", "sync")
    with pytest.raises(AdapterDamaged, match="is not the manifest that"):
        AdapterStorage(storage.url).fetch(folder.name, tmp_path / "engine", "sync", "0" * 64)
    assert left_over(tmp_path / "engine") == []


def test_a_transfer_that_is_cut_is_tried_again(
    storage: AdapterStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(tmp_path / "learner")
    storage.publish(folder)
    fs, _ = storage._open()
    get_file = fs.get_file

    def half(path: str, file: str, **rest: Any) -> None:
        get_file(path, file, **rest)
        Path(file).write_bytes(cut(Path(file).read_bytes()))

    with monkeypatch.context() as patched:
        patched.setattr(fs, "get_file", half)
        with pytest.raises(AdaptersUnavailable, match=r"was cut off: [\d,]+ of [\d,]+ bytes arrived"):
            storage.fetch(folder.name, tmp_path / "engine", "sync")
    assert content(storage.fetch(folder.name, tmp_path / "engine", "sync")) == content(folder)


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    raw = json.dumps({"files": {"../../escape": "0" * 64}}).encode()
    name = f"helpdesk@1-{hashlib.sha256(raw).hexdigest()[:12]}"
    (tmp_path / "shared" / "versions" / name).mkdir(parents=True)
    (tmp_path / "shared" / "versions" / name / "manifest.json").write_bytes(raw)
    with pytest.raises(AdapterDamaged, match="does not list the sha256"):
        AdapterStorage(str(tmp_path / "shared")).fetch(name, tmp_path / "engine", "sync")


# --- removed


def test_a_removal_is_recorded_and_may_be_repeated(storage: AdapterStorage, tmp_path: Path) -> None:
    one, other = make_folder(tmp_path / "learner"), make_folder(tmp_path / "learner", "helpdesk@2")
    storage.publish(one)
    storage.publish(other)
    assert not storage.was_removed(one.name)
    for _ in range(2):
        storage.remove(one.name)
        assert storage.names() == {other.name}
        assert storage.was_removed(one.name)
        assert not storage.was_removed(other.name)
    storage.remove("helpdesk@9-000000000000")
    assert not storage.was_removed("helpdesk@9-000000000000")


def test_a_removal_that_was_interrupted_is_completed(
    storage: AdapterStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(tmp_path / "learner")
    storage.publish(folder)
    fs, _ = storage._open()
    removed: list[str] = []
    rm_file = fs.rm_file

    def die_at_the_second(path: str) -> None:
        if removed:
            raise KeyboardInterrupt
        removed.append(path)
        rm_file(path)

    with monkeypatch.context() as patched:
        patched.setattr(fs, "rm_file", die_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            storage.remove(folder.name)
    assert removed[0].endswith("manifest.json")
    assert storage.was_removed(folder.name)
    assert storage.names() == set()
    storage.remove(folder.name)
    assert fs.find(f"{storage._open()[1]}/versions") == []


# --- what goes wrong around it


def test_a_full_disk_is_named(storage: AdapterStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(tmp_path / "learner")
    storage.publish(folder)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(storage._open()[0], "get_file", full)
        with pytest.raises(AdaptersUnavailable, match=f"no space is left in {tmp_path}/engine. Free some"):
            storage.fetch(folder.name, tmp_path / "engine", "sync")
    assert left_over(tmp_path / "engine") == []
    with monkeypatch.context() as patched:
        patched.setattr(storage._open()[0], "put_file", full)
        patched.setattr(shutil, "copyfile", full)
        other = make_folder(tmp_path / "learner", "helpdesk@2")
        with pytest.raises(AdaptersUnavailable, match=rf"could not take {other.name}: no space is left in "):
            storage.publish(other)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_host_that_may_not_write_is_named(storage: AdapterStorage, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "learner")
    storage.publish(folder)
    (tmp_path / "engine").mkdir(mode=0o500)
    with pytest.raises(AdaptersUnavailable, match=rf"could not give {folder.name}: {tmp_path}/engine/.*: Permission"):
        storage.fetch(folder.name, tmp_path / "engine", "sync")


def test_a_file_in_the_way_is_named(storage: AdapterStorage, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "learner")
    storage.publish(folder)
    (tmp_path / "engine").write_text("in the way")
    with pytest.raises(AdaptersUnavailable, match=rf"could not give {folder.name}: {tmp_path}/engine.*: "):
        storage.fetch(folder.name, tmp_path / "engine", "sync")


def test_a_folder_of_a_group_may_be_read_by_it(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2750)
    storage, folder = AdapterStorage(str(tmp_path / "shared")), make_folder(tmp_path / "learner")
    storage.publish(folder)
    there = tmp_path / "shared" / "versions" / folder.name
    assert [stat.S_IMODE(one.stat().st_mode) & 0o777 for one in (there.parent, there)] == [0o750, 0o750]
    assert {stat.S_IMODE(one.stat().st_mode) for one in there.iterdir()} == {0o640}
    storage.remove(folder.name)
    assert stat.S_IMODE((tmp_path / "shared" / "removed").stat().st_mode) & 0o777 == 0o750


def test_a_bucket_that_is_not_there_is_named(s3: str, tmp_path: Path) -> None:
    storage = AdapterStorage("s3://hone-no-such-bucket/adapters")
    with pytest.raises(AdaptersUnavailable, match=r"could not be listed: it is not there .*Create the bucket"):
        storage.names()
    with pytest.raises(AdaptersUnavailable, match=r"could not take helpdesk@1-\w+: it is not there"):
        storage.publish(make_folder(tmp_path))


def test_a_storage_that_is_away_is_named_without_credentials(
    s3: str, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    [port] = free_ports(1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    with pytest.raises(AdaptersUnavailable, match=r"s3://.* could not be listed: ") as failed:
        AdapterStorage(s3).names()
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__
    for secret in (ACCESS_KEY, SECRET_KEY):
        assert secret not in str(failed.value)


def test_no_error_has_a_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a-key-of-azure")
    storage = AdapterStorage(str(tmp_path))

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("403 for https://x.example/c?sv=1&sig=abcdef, signed with a-key-of-azure")

    monkeypatch.setattr(storage._open()[0], "find", refuse)
    with pytest.raises(AdaptersUnavailable, match="does not accept this program's credentials") as failed:
        storage.names()
    assert "a-key-of-azure" not in str(failed.value)
    assert "abcdef" not in str(failed.value)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(AdaptersUnavailable, match=r"it needs `pip install 'hone-proxy\[gs\]'`"):
        AdapterStorage("gs://bucket/folder").names()
