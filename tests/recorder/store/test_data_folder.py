"""The data folder is its owner's alone: whatever the umask, whatever its age; and who may be let in to the adapters."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from recorder.errors import StoreError
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.data_folder import make_data_folder, share_adapters


@pytest.fixture(params=[0o000, 0o022, 0o277])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def opened(folder: Path) -> dict[str, str]:
    """What in a folder, itself too, others may do anything with."""
    found = [folder, *folder.rglob("*")]
    return {path.relative_to(folder).as_posix(): oct(mode(path)) for path in found if mode(path) & 0o077}


def old(data: Path) -> Path:
    """A data folder as earlier programs made it."""
    for name in ("logs", "adapters/helpdesk@1-0123", "campaigns/c"):
        (data / name).mkdir(parents=True)
    for name in ("hone.db", "hone.db-wal", "run.json", "engine.key", "logs/a.log", "adapters/helpdesk@1-0123/p.json"):
        (data / name).write_text("")
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return data


@pytest.mark.usefixtures("_umask")
async def test_a_new_data_folder_is_the_owners_alone(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    store = await open_store(data, RecorderSettings(), migrate=True)
    try:
        assert {path.name for path in data.iterdir()} >= {"hone.db", "hone.db-wal", "hone.db-shm"}
        assert (opened(data), mode(data), mode(data / "hone.db")) == ({}, 0o700, 0o600)
        assert mode(data.parent) == 0o700
    finally:
        await store.close()


def test_an_old_one_that_is_open_is_mended_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = old(tmp_path / "data")
    (data / "theirs.txt").write_text("")
    (data / "theirs.txt").chmod(0o644)
    with caplog.at_level(logging.WARNING):
        make_data_folder(data)
        make_data_folder(data)
    assert opened(data) == {"theirs.txt": "0o644"}, "what is not Hone's is left"
    [line] = [record.getMessage() for record in caplog.records]
    assert "was open to others: 12 of its files and folders are now accessible to the owner only" in line


def test_what_a_killed_program_left_in_a_closed_folder_is_closed_and_not_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = make_data_folder(tmp_path / "data")
    draft = data / "checkpoints" / ".unfinished-helpdesk-0123"
    draft.mkdir(parents=True)
    (data / "checkpoints").chmod(0o700)
    draft.chmod(0o700)
    (draft / "state.pt").write_text("half")
    (draft / "state.pt").chmod(0o644)
    with caplog.at_level(logging.WARNING):
        make_data_folder(data)
    assert mode(draft / "state.pt") == 0o600
    assert not caplog.records
    (data / "checkpoints").chmod(0o755)
    draft.chmod(0o755)
    (draft / "state.pt").chmod(0o644)
    data.chmod(0o755)
    make_data_folder(data)
    [line] = [record.getMessage() for record in caplog.records]
    assert "4 of its files" in line, "one that could be reached is told"


def test_what_a_link_leads_to_is_left(tmp_path: Path) -> None:
    data, outside = old(tmp_path / "data"), tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o755)
    (data / "logs" / "link").symlink_to(outside)
    make_data_folder(data)
    assert mode(outside) == 0o755


def test_a_folder_of_other_things_is_not_closed_but_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "home"
    theirs.mkdir()
    theirs.chmod(0o755)
    make_data_folder(theirs)
    assert mode(theirs) == 0o700, "an empty one is taken"
    (theirs / "letter.txt").write_text("")
    theirs.chmod(0o755)
    with pytest.raises(StoreError, match=f"is open to others and contains other files than Hone's.*chmod 700 {theirs}"):
        make_data_folder(theirs)
    assert mode(theirs) == 0o755
    theirs.chmod(0o700)
    assert make_data_folder(theirs) == theirs


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_foreign_owner_is_refused(tmp_path: Path) -> None:
    data = old(tmp_path / "data")
    os.chown(data, 12345, -1)
    with pytest.raises(StoreError, match="belongs to user 12345, and this program runs as 0"):
        make_data_folder(data)


def test_a_group_may_be_let_in_to_the_adapters_alone(tmp_path: Path) -> None:
    data = old(tmp_path / "data")
    group = os.getgid()
    share_adapters(make_data_folder(data), str(group))
    make_data_folder(data)  # another program, which does not know of the group
    version = data / "adapters" / "helpdesk@1-0123"
    assert opened(data) == {
        ".": "0o710",
        "adapters": "0o2750",
        "adapters/helpdesk@1-0123": "0o750",
        "adapters/helpdesk@1-0123/p.json": "0o640",
    }
    assert version.stat().st_gid == group
    share_adapters(data, None)
    assert opened(data) == {}


def test_a_group_that_is_not_there_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"'no-such-group' cannot be given .* Set engine\.adapter_group"):
        share_adapters(make_data_folder(tmp_path / "data"), "no-such-group")
