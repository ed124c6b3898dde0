"""A real S3 server (moto's), and adapters to publish. Each test has a bucket of its own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from recorder.adapters.storage import AdapterStorage
from tests.recorder.adapters.s3_server import S3Server, running_s3


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket, with this process's environment as a program's that uses it."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"hone-{secrets.token_hex(6)}"
    s3_server.make_bucket(bucket)
    return f"s3://{bucket}/adapters"


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each kind of place."""
    return str(request.getfixturevalue("s3")) if request.param == "s3" else str(tmp_path / "shared")


@pytest.fixture
def storage(url: str) -> AdapterStorage:
    return AdapterStorage(url)
