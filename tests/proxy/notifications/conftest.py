"""A receiver on loopback, and the target that sends to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from proxy.notifications.target import Target, find_target
from proxy.settings.notify import NotifySettings
from tests.proxy.notifications.receiver import SECRET, Receiver, receiving


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


@pytest.fixture
def target(receiver: Receiver) -> Target:
    return target_of(receiver.url)


def target_of(url: str, **settings: object) -> Target:
    """The target of an address."""
    given = {"url": url, "secret": SECRET, **settings}
    found = find_target(NotifySettings.model_validate(given), "http://hone.example.com:8700")
    assert found is not None
    return found
