"""The key reaches the service and nothing else: no log, error, file or link has it, also while requests fail."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tinker

from tests.trainer.step.tinker.conftest import OpenCore
from tests.trainer.step.tinker.test_remote_core import BASE, one_step, rows
from tests.trainer.tinker_server import KEY, NAME, Fault, TinkerServer
from trainer.errors import TinkerRefused, TrainerError
from trainer.step.state.results import PhaseSeconds
from trainer.step.tinker.rows import next_token_datum
from trainer.step.tinker.secret import VARIABLE, ServiceKey, guarded_logs, read_key


class Collector(logging.Handler):
    """Every record of every logger, as a formatter writes it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name} {self.format(record)} {record.__dict__}")

    def leaks(self) -> list[str]:
        return [line for line in self.lines if KEY in line]


@pytest.fixture
def log() -> Iterator[Collector]:
    """All that is logged, from DEBUG on, by every library."""
    root, collector = logging.getLogger(), Collector()
    names = ("tinker", "httpx", "httpcore", "hpack", "pyqwest", "asyncio", "urllib3")
    levels = {name: logging.getLogger(name).level for name in names}
    before = root.level
    root.addHandler(collector)
    root.setLevel(logging.DEBUG)
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield collector
    root.removeHandler(collector)
    root.setLevel(before)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def failing_call(service: TinkerServer) -> None:
    """The library alone, as anybody would use it, whose fetch of a result the service refuses once."""
    client = tinker.ServiceClient(base_url=service.url, api_key=KEY)
    model = client.create_lora_training_client(NAME, rank=4, seed=1, train_unembed=False).result()
    service.faults.append(Fault("retrieve_future", 400, {"detail": "try again"}))
    model.forward([next_token_datum(np.arange(1, 9))], "cross_entropy").result()
    client.close("success").result()


def test_the_library_alone_writes_the_key_into_its_log(service: TinkerServer, log: Collector) -> None:
    """Why there is a guard: after a failed fetch it reports the request's headers to its service, and logs what it
    sends. The report goes out every ten seconds, so a test that only sometimes meets such an error sees it rarely.
    """
    failing_call(service)
    (leak,) = log.leaks()
    assert leak.startswith("tinker._base_client Request options")
    assert "/api/v1/telemetry" in leak


def test_under_the_guard_the_same_calls_write_no_key(service: TinkerServer, log: Collector) -> None:
    with guarded_logs(ServiceKey(KEY)):
        failing_call(service)
    assert not log.leaks()
    assert not service.bodies("telemetry")
    assert log.lines  # the handler was there


@pytest.mark.parametrize(
    "fault",
    [
        Fault("retrieve_future", 400, {"detail": f"bad key {KEY}"}, times=4),
        Fault("retrieve_future", 404, {"detail": f"nothing for {KEY}"}),
        Fault("optim_step", 422, {"detail": f"no such field, {KEY}"}),
        Fault("forward_backward", 403, f"{KEY} may not"),
        Fault("forward_backward", 401, {"detail": KEY}),
    ],
    ids=lambda fault: f"{fault.route} {fault.status}",
)
def test_a_service_that_answers_with_the_key_does_not_make_it_known(
    fault: Fault, log: Collector, open_core: OpenCore, service: TinkerServer, capfd: pytest.CaptureFixture[str]
) -> None:
    core = open_core()
    core.go_to(BASE)
    service.faults.append(fault)
    with pytest.raises(TrainerError) as failed:
        core.step(rows(1), 1e-2, lambda: False, PhaseSeconds())
    core.close()
    assert_without_key(failed.value, log, capfd)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("retrieve_future", 500, f"{KEY}", times=2),
        Fault("retrieve_future", 429, f"{KEY}"),
        Fault("forward_backward", 408, f"{KEY}", headers={"retry-after-ms": "1"}),
        Fault("optim_step", 503, f"{KEY}", times=2, headers={"retry-after-ms": "1"}),
        Fault("save_weights_external", 409, f"{KEY}"),
        Fault("retrieve_future", None, delay_s=0.3),
    ],
    ids=lambda fault: f"{fault.route} {fault.status}",
)
def test_a_step_that_succeeds_after_retries_writes_no_key(
    fault: Fault, log: Collector, open_core: OpenCore, service: TinkerServer, capfd: pytest.CaptureFixture[str]
) -> None:
    core = open_core()
    core.go_to(BASE)
    service.faults.append(fault)
    one_step(core, 1, rows(1))
    assert fault.times == 0
    assert_without_key(None, log, capfd)


def test_a_time_out_writes_no_key(
    log: Collector, open_core: OpenCore, service: TinkerServer, capfd: pytest.CaptureFixture[str]
) -> None:
    core = open_core(tinker={"answer_timeout_s": 2.0})
    core.go_to(BASE)
    service.faults.append(Fault("optim_step", 503, KEY, times=10**6, headers={"retry-after-ms": "5"}))
    with pytest.raises(TrainerError, match=r"more than 2 s \(trainer\.tinker\.answer_timeout_s\)") as failed:
        core.step(rows(1), 1e-2, lambda: False, PhaseSeconds())
    assert_without_key(failed.value, log, capfd)


def test_no_file_has_the_key(open_core: OpenCore, tmp_path: Path) -> None:
    core = open_core()
    core.go_to(BASE)
    one_step(core, 1, rows(1))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def assert_without_key(error: BaseException | None, log: Collector, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither an error with all that it came from, nor the log, nor the terminal has the key."""
    chain: list[BaseException] = []
    while error is not None:
        chain.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert not [one for one in chain if KEY in str(one) or KEY in repr(one)]
    assert not log.leaks()
    shown = capfd.readouterr()
    assert KEY not in shown.out + shown.err


def test_any_record_of_any_logger_is_masked() -> None:
    log = Collector()
    logger = logging.getLogger("someone.else")
    logger.addHandler(log)
    logger.setLevel(logging.DEBUG)
    try:
        with guarded_logs(ServiceKey(KEY)):
            logger.info("in the text: %s", KEY)
            logger.warning({"as": KEY})
            logger.error("too %s few", KEY, KEY)
            try:
                raise ValueError(f"of {KEY}") from KeyError(KEY)
            except ValueError:
                logger.exception("failed")
            logger.info("fine %d", 3, stack_info=True)
            logging.getLogger("someone.else.again").debug("%r", {"x-api-key": KEY})
    finally:
        logger.removeHandler(log)
    assert len(log.lines) == 6
    assert not log.leaks()
    assert "in the text: ***" in log.lines[0]
    assert "ValueError: of ***" in log.lines[3]
    assert "fine 3" in log.lines[4]


def test_an_event_loop_that_reports_a_lost_error_masks_it() -> None:
    log = Collector()
    logging.getLogger("asyncio").addHandler(log)

    async def fails() -> None:
        raise ValueError(KEY)

    async def lose() -> None:
        task = asyncio.ensure_future(fails())
        await asyncio.wait([task])
        del task

    try:
        with guarded_logs(ServiceKey(KEY)):
            asyncio.run(lose())
            import gc

            gc.collect()
    finally:
        logging.getLogger("asyncio").removeHandler(log)
    assert log.lines
    assert not log.leaks()


def test_the_guard_leaves_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_TELEMETRY", raising=False)
    before, level = logging.getLogRecordFactory(), logging.getLogger("tinker").level
    with guarded_logs(ServiceKey(KEY)):
        assert os.environ["TINKER_TELEMETRY"] == "0"
        assert logging.getLogRecordFactory() is not before
    assert logging.getLogRecordFactory() is before
    assert logging.getLogger("tinker").level == level
    assert "TINKER_TELEMETRY" not in os.environ


def test_guards_that_overlap_hold_until_their_own_end() -> None:
    """A trainer opens a new client before it closes the one before: the older guard ends first."""
    before, level, other = logging.getLogRecordFactory(), logging.getLogger("tinker").level, "tml-another-key-0123"
    log = Collector()
    logger = logging.getLogger("someone.else")
    logger.addHandler(log)
    older, newer = guarded_logs(ServiceKey(KEY)), guarded_logs(ServiceKey(other))
    try:
        with older:
            newer.__enter__()
            logger.warning("both %s %s", KEY, other)
        logger.warning("one %s", other)
        assert logging.getLogger("tinker").level == logging.WARNING
        newer.__exit__(None, None, None)
        logger.warning("none %s", other)
    finally:
        logger.removeHandler(log)
    both, one, none = log.lines
    assert "both *** ***" in both
    assert "one ***" in one
    assert other in none
    assert logging.getLogRecordFactory() is before
    assert logging.getLogger("tinker").level == level
    assert "TINKER_TELEMETRY" not in os.environ


@pytest.mark.parametrize(
    "value", ["", "  ", "sk-0123456789", "tml-", "tml-a b c d e", "tml-abcd\nefgh", "tml-abcdé", "tml-abcd\x00efgh"]
)
def test_what_is_no_key_is_refused_without_being_quoted(value: str) -> None:
    with pytest.raises(TinkerRefused, match=VARIABLE) as refused:
        read_key({VARIABLE: value})
    if value.strip():
        assert value.strip() not in str(refused.value).replace("begin with tml- and", "")


def test_a_key_may_be_read_from_a_file_with_a_line_end() -> None:
    key = read_key({VARIABLE: f" {KEY}\n"})
    assert key.reveal() == KEY
    assert KEY not in f"{key} {key!r} {[key]}"
