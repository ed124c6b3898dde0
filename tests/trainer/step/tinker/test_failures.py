"""A service in trouble: the error says what to do, the session is dropped, and the next step begins a new one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import tinker

from tests.trainer.step.tinker.conftest import OpenCore, settings_of
from tests.trainer.step.tinker.test_remote_core import BASE, one_step, rows
from tests.trainer.tinker_server import KEY, Fault, TinkerServer
from trainer.errors import (
    AdapterInvalid,
    CheckpointExpired,
    CheckpointInvalid,
    StepFailed,
    StepInterrupted,
    TinkerRefused,
    TinkerUnavailable,
)
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import PhaseSeconds, StartVersion
from trainer.step.tinker.failures import explain_failure
from trainer.step.tinker.remote_core import TinkerCore
from trainer.step.tinker.secret import VARIABLE, ServiceKey
from trainer.step.tinker.session import Session

FOREVER = 10**6
QUICKLY = {"retry-after-ms": "5"}


def test_a_lost_session_fails_the_step_and_the_next_one_opens_another(
    open_core: OpenCore, service: TinkerServer
) -> None:
    core = open_core()
    core.go_to(BASE)
    _, written = one_step(core, 1, rows(1))
    service.models.clear()  # as a service does with the models of a session that it has ended
    with pytest.raises(TinkerUnavailable, match="lost the session"):
        core.step(rows(2), 1e-2, lambda: False, PhaseSeconds())
    sessions = len(service.bodies("create_session"))
    core.go_to(StartVersion("v1", written.published.path, written.published.manifest_sha256))
    one_step(core, 2, rows(2))
    assert len(service.bodies("create_session")) == sessions + 1


def test_an_expired_state_says_what_to_do(open_core: OpenCore, service: TinkerServer) -> None:
    core = open_core()
    core.go_to(BASE)
    _, written = one_step(core, 1, rows(1))
    service.checkpoints.clear()
    core.go_to(BASE)
    with pytest.raises(CheckpointExpired, match=r"no state of the version tiny@1-\w+ .*checkpoint_days"):
        core.go_to(StartVersion("v1", written.published.path, written.published.manifest_sha256))


def test_a_version_that_was_trained_elsewhere_cannot_be_begun_at(open_core: OpenCore, tmp_path: Path) -> None:
    core = open_core()
    core.go_to(BASE)
    _, written = one_step(core, 1, rows(1))
    core.go_to(BASE)
    state = written.checkpoint / "tinker.json"
    start = StartVersion("v1", written.published.path, written.published.manifest_sha256)
    for content in ("{", "{}", '{"path": 3}', '{"path": "/etc/passwd"}', "[]"):
        state.write_text(content)
        with pytest.raises(CheckpointInvalid, match=r"tinker\.json"):
            core.go_to(start)
    state.unlink()
    with pytest.raises(CheckpointInvalid, match=r'takes no weights from files: set trainer.backend = "local"'):
        core.go_to(start)


def test_a_version_of_another_scale_cannot_be_begun_at(
    open_core: OpenCore, service: TinkerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = open_core()
    core.go_to(BASE)
    _, written = one_step(core, 1, rows(1))
    monkeypatch.setattr("tests.trainer.tinker_server.ALPHA", 16.0)
    again = open_core(alpha=16.0)
    with pytest.raises(AdapterInvalid, match="a version's descendants keep its alpha"):
        again.go_to(StartVersion("v1", written.published.path, written.published.manifest_sha256))


def test_a_rate_limit_is_waited_for_and_then_given_up(open_core: OpenCore, service: TinkerServer) -> None:
    core = open_core(tinker={"answer_timeout_s": 3.0})
    core.go_to(BASE)
    service.faults.append(Fault("forward_backward", 429, "slowly", times=2, headers=QUICKLY))
    assert core.step(rows(1), 1e-2, lambda: False, PhaseSeconds()).changed
    core.go_to(BASE)
    service.faults.append(Fault("forward_backward", 429, "slowly", times=FOREVER, headers=QUICKLY))
    with pytest.raises(TinkerUnavailable, match="more than 3 s"):
        core.step(rows(1), 1e-2, lambda: False, PhaseSeconds())


def test_a_server_that_is_down_is_given_up(tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    settings = settings_of(tiny_base, "http://127.0.0.1:9", tinker={"answer_timeout_s": 1.5})
    with pytest.raises(TinkerUnavailable, match=r"more than 1\.5 s"):
        TinkerCore(tiny_base, settings, TrainerFolders.of(tmp_path), lambda: False)


def test_a_key_that_the_service_does_not_know_is_refused_at_the_start(
    open_core: OpenCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "tml-another-0123456789")
    with pytest.raises(TinkerRefused, match=rf"refuses the key \(401.* Check {VARIABLE}") as refused:
        open_core()
    assert "tml-another" not in str(refused.value)


def test_a_missing_key_is_refused_before_anything_is_loaded(
    open_core: OpenCore, service: TinkerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(TinkerRefused, match=VARIABLE):
        open_core()
    assert not service.requests


def test_a_key_is_not_sent_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_BASE_URL", "http://tinker.example")
    settings = settings_of(Path(), "https://unused.example").tinker.model_copy(update={"url": None})
    with pytest.raises(TinkerRefused, match="neither https nor on this machine"):
        Session(settings, ServiceKey(KEY))


def test_files_that_cannot_be_downloaded_fail_the_step(open_core: OpenCore, service: TinkerServer) -> None:
    core = open_core()
    core.go_to(BASE)
    service.faults.append(Fault("/files/", 403, "the link has expired"))
    with pytest.raises(TinkerUnavailable, match="cannot be downloaded") as failed:
        core.step(rows(1), 1e-2, lambda: False, PhaseSeconds())
    assert "hush" not in str(failed.value)  # the link's signature
    assert not service.exports


def test_files_that_are_no_adapter_fail_the_step(open_core: OpenCore, service: TinkerServer) -> None:
    core = open_core()
    core.go_to(BASE)
    service.faults.append(Fault("/files/", 200, b"no safetensors"))
    with pytest.raises(AdapterInvalid, match="cannot be read"):
        core.step(rows(1), 1e-2, lambda: False, PhaseSeconds())


def test_a_state_that_is_not_saved_leaves_no_version(
    open_core: OpenCore, service: TinkerServer, tmp_path: Path
) -> None:
    core = open_core()
    core.go_to(BASE)
    service.faults.append(Fault("save_weights$", 422, "no room"))
    with pytest.raises(TinkerRefused, match="saving the state"):
        one_step(core, 1, rows(1))
    folders = TrainerFolders.of(tmp_path / "remote")
    assert not list(folders.adapters.iterdir())
    assert not folders.checkpoints.exists()


def test_a_step_is_stopped_while_it_waits(open_core: OpenCore, service: TinkerServer) -> None:
    core = open_core()
    core.go_to(BASE)
    service.faults.append(Fault("optim_step", 503, "busy", times=FOREVER, headers=QUICKLY))
    asked = threading.Event()

    def stopped() -> bool:
        if service.bodies("forward_backward")[-1:] and len(service.bodies("forward_backward")) > 2:
            asked.set()
        return asked.is_set()

    with pytest.raises(StepInterrupted):
        core.step(rows(1), 1e-2, stopped, PhaseSeconds())


def test_what_the_library_raises_becomes_one_of_our_errors() -> None:
    import httpx
    from tinker.types import RequestErrorCategory

    key = ServiceKey(KEY)
    request = httpx.Request("POST", "https://tinker.example/api", headers={"X-API-Key": KEY})

    def of_status(status: int) -> tinker.APIStatusError:
        return tinker.APIStatusError(f"{status} {KEY}", httpx.Response(status, request=request), None)

    expected = {
        400: TinkerRefused, 401: TinkerRefused, 402: TinkerRefused, 403: TinkerRefused, 404: TinkerUnavailable,
        408: TinkerUnavailable, 409: TinkerUnavailable, 410: TinkerUnavailable, 422: TinkerRefused,
        429: TinkerUnavailable, 500: TinkerUnavailable, 503: TinkerUnavailable,
    }  # fmt: skip
    for status, kind in expected.items():
        said = explain_failure(of_status(status), "the step", key)
        assert type(said) is kind, status
        assert KEY not in str(said)
    user = tinker.RequestFailedError(f"bad row {KEY}", "request", RequestErrorCategory.User)
    server = tinker.RequestFailedError("a machine died", "request", RequestErrorCategory.Server)
    assert type(explain_failure(user, "the step", key)) is TinkerRefused
    assert type(explain_failure(server, "the step", key)) is TinkerUnavailable
    gone = ValueError("a result cannot be fetched")
    gone.__cause__ = of_status(404)
    assert "lost the session" in str(explain_failure(gone, "the step", key))
    assert type(explain_failure(tinker.APIConnectionError(request), "the step", key)) is TinkerUnavailable
    own = StepFailed("the loss is not finite")
    assert explain_failure(own, "the step", key) is own
