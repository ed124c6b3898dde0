"""`adapters.url` names a place, and nothing that is secret."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from recorder.settings import AdapterSettings


@pytest.mark.parametrize(
    "url",
    [
        "/mnt/adapters",
        "file:///mnt/adapters",
        "s3://bucket/hone",
        "gs://bucket/hone",
        "az://container/hone",
        "abfs://container@account.dfs.core.windows.net/hone",
    ],
)
def test_places(url: str) -> None:
    assert AdapterSettings(url=f"{url}/").url == url


@pytest.mark.parametrize("url", ["adapters", "../adapters", "", "s3:bucket", "simplecache::s3://bucket"])
def test_what_is_no_place(url: str) -> None:
    with pytest.raises(ValidationError, match="no absolute folder and no URL"):
        AdapterSettings(url=url)


@pytest.mark.parametrize("url", ["s3://id:secret@bucket/hone", "az://container/hone?sig=abc"])
def test_credentials_are_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="put them into the environment"):
        AdapterSettings(url=url)
