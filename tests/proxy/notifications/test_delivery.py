"""One POST: what its answer means, its bounds, and that nothing shows the address."""

from __future__ import annotations

import logging

import pytest
from pydantic import ValidationError

from proxy.errors import ConfigError
from proxy.notifications.delivery import Delivery, post_notification
from proxy.notifications.target import Target, find_target
from proxy.settings.display import display_value, list_leaves
from proxy.settings.notify import KINDS, NotifySettings
from recorder.queue.notifications import NoticeKind
from tests.failing_servers import failing, require_plain
from tests.proxy.notifications.conftest import target_of
from tests.proxy.notifications.receiver import SECRET, Receiver
from tests.proxy.notifications.test_message import a_notification, documented_check


async def test_a_message_is_signed_as_documented(receiver: Receiver, target: Target) -> None:
    assert await post_notification(target, "default", a_notification()) == Delivery()
    ((path, headers, body),) = receiver.requests
    assert path == "/services/T0/private-path"
    assert headers["content-type"] == "application/json"
    assert documented_check()(headers, body, SECRET)
    assert receiver.messages[0]["link"] == "http://hone.example.com:8700/hone/versions/helpdesk@4"


@pytest.mark.parametrize(
    ("status", "final"), [(500, False), (503, False), (429, False), (408, False), (400, True), (404, True), (410, True)]
)
async def test_what_an_answer_means(receiver: Receiver, target: Target, status: int, final: bool) -> None:
    receiver.answers = [status]
    outcome = await post_notification(target, "default", a_notification())
    assert outcome == Delivery(f"{target.host} answered {status}", final)


async def test_a_redirect_is_not_followed(receiver: Receiver, target: Target) -> None:
    receiver.answers = [307]
    outcome = await post_notification(target, "default", a_notification())
    assert outcome.final
    assert "redirects are not followed" in str(outcome.error)
    assert len(receiver.requests) == 1


async def test_a_receiver_that_never_answers_is_given_up(receiver: Receiver) -> None:
    receiver.hangs = True
    target = target_of(receiver.url, timeout_s=0.2)
    outcome = await post_notification(target, "default", a_notification())
    assert outcome == Delivery(f"{target.host} gave no answer within 0.2 s", False)


@pytest.mark.parametrize("how", ["dead", "certificate"])
async def test_a_receiver_that_cannot_be_reached(how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy")
    async with failing(how) as url:
        target = target_of(f"{url}/private-path")
        outcome = await post_notification(target, "default", a_notification())
    assert not outcome.final
    assert "private-path" not in require_plain(str(outcome.error))
    assert "private-path" not in caplog.text


def test_the_address_and_the_secret_are_never_shown(receiver: Receiver) -> None:
    settings = NotifySettings.model_validate({"url": receiver.url, "secret": SECRET})
    shown = {key: display_value(key, value) for key, value in list_leaves(settings)}
    target = find_target(settings, None)
    assert "private-path" not in f"{settings!r} {shown} {target!r}"
    assert SECRET not in f"{settings!r} {shown} {target!r}"


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "https://h/private-path"},  # unsigned
        {"url": "ftp://h/private-path", "secret": SECRET},
        {"url": "https://user:private-path@h/", "secret": SECRET},
        {"url": "https:///private-path", "secret": SECRET},
        {"url": "https://h/private-path#x", "secret": SECRET},
        {"url": "https://h:bad/private-path", "secret": SECRET},
        {"url": "https://h/private-path", "url_env": "X", "secret": SECRET},
        {"url": "https://h/private-path", "secret": "private-path"},  # too short
        {"url": "https://h/private-path", "secret": "whsec_private-path!"},
        {"url": "http://h/private-path", "form": "slack"},
    ],
)
def test_settings_that_cannot_work_are_refused_without_quoting_them(settings: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as refused:
        NotifySettings.model_validate(settings)
    assert "private-path" not in str(refused.value.errors()[0]["msg"])


def test_the_environment_is_read_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = NotifySettings.model_validate({"url_env": "SLACK_URL", "form": "slack"})
    with pytest.raises(ConfigError, match="SLACK_URL, which is not set"):
        find_target(settings, None)
    monkeypatch.setenv("SLACK_URL", "https://hooks.slack.com/services/x")
    found = find_target(settings, None)
    assert found is not None
    assert (found.host, found.key, found.link("/hone/")) == ("hooks.slack.com", None, None)
    monkeypatch.setenv("SLACK_URL", "http://hooks.slack.com/services/x")
    with pytest.raises(ConfigError, match="give the https address"):
        find_target(settings, None)
    assert find_target(NotifySettings(), None) is None


def test_the_kinds_of_the_settings_are_those_of_notices() -> None:
    assert set(KINDS) == set(NoticeKind) - {NoticeKind.TEST}
