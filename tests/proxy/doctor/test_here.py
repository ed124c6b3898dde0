"""What is looked at on this machine: the folder, other Hones, ports, names, and whether there are weights to train."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

import pytest

from proxy.doctor import machine
from proxy.engine.device import Device
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import AliasSettings, EngineSettings, ModelSettings, ProxySettings
from recorder.base.findings import FindingLevel
from tests.recorder.models.model_folders import write_model
from trainer.settings import TrainerSettings
from trainer.track_settings import TrackSettings

RUN = {"pids": {"up": 7}, "proxy_url": "http://127.0.0.1:8700"}
ALIAS = {"helpdesk": AliasSettings()}
BY_URL = EngineSettings(urls=["http://127.0.0.1:9"])


def test_another_hone_is_in_the_way_of_one_that_starts_and_of_nobody_else(tmp_path: Path) -> None:
    in_the_way = machine.check_other_hone(tmp_path, RUN, starting=True)
    assert in_the_way.stops
    assert "process 7" in in_the_way.found
    assert machine.check_other_hone(tmp_path, RUN, starting=False).verdict is FindingLevel.FINE
    assert machine.check_other_hone(tmp_path, None, starting=True).verdict is FindingLevel.FINE


def test_a_folder_that_is_a_file_stops_everything(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert machine.check_data_folder(tmp_path / "file").stops
    assert machine.check_data_folder(tmp_path).verdict is FindingLevel.FINE
    assert machine.check_data_folder(tmp_path / "new").verdict is FindingLevel.FINE
    assert not (tmp_path / "new").exists()


def test_a_port_in_use_is_named_with_its_setting_unless_it_is_ours() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = HoneSettings(proxy=ProxySettings(port=taken.getsockname()[1]))
        [found] = machine.check_ports(settings, running=False, starts_engine=False)
        assert found.stops
        assert "--port" in found.found
        [found] = machine.check_ports(settings, running=True, starts_engine=False)
        assert found.verdict is FindingLevel.FINE


def test_nothing_to_ask_for_stops_everything_and_a_providers_model_is_enough() -> None:
    assert machine.check_names(HoneSettings()).stops
    assert machine.check_names(HoneSettings(aliases=ALIAS)).verdict is FindingLevel.FINE
    models = [ModelSettings(name="m", model="openai/m")]
    assert machine.check_names(HoneSettings(proxy=ProxySettings(models=models))).verdict is FindingLevel.NOTE


@pytest.mark.parametrize("of", ["engine", "trainer"])
def test_an_adapter_in_place_of_a_base_stops_everything(tmp_path: Path, of: str) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}')
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    (tmp_path / "config.json").write_text("{}")
    base = str(tmp_path)
    settings = HoneSettings(
        aliases=ALIAS,
        engine=EngineSettings(base=base) if of == "engine" else BY_URL,
        trainer=TrainerSettings(base=base if of == "trainer" else None),
    )
    found = machine.check_base(settings)
    assert found.stops
    assert f"{base!r} holds an adapter" in found.found
    assert "some/base" in found.todo


def test_an_engine_by_url_alone_is_said_to_train_never() -> None:
    settings = HoneSettings(aliases=ALIAS, engine=BY_URL)
    told = machine.check_base(settings)
    assert told.verdict is FindingLevel.NOTE
    assert "record and judge, but never train" in told.found
    assert not machine.check_weights(settings)
    with_weights = settings.model_copy(update={"trainer": TrainerSettings(base="org/model")})
    assert machine.check_base(with_weights).verdict is FindingLevel.FINE
    assert machine.check_weights(with_weights)


def test_a_folder_that_is_not_there_is_told_before_an_engine_is_started_for_it(tmp_path: Path) -> None:
    told = machine.check_base(HoneSettings(engine=EngineSettings(base=str(tmp_path / "gone"))))
    assert told.verdict is FindingLevel.WRONG
    assert told.stops
    assert f"the folder {tmp_path / 'gone'} does not exist" in told.found
    assert machine.check_base(HoneSettings(engine=EngineSettings(base="org/gone"))).verdict is FindingLevel.FINE
    elsewhere = EngineSettings(base=str(tmp_path / "gone"), urls=BY_URL.urls)
    assert machine.check_base(HoneSettings(aliases=ALIAS, engine=elsewhere)).verdict is FindingLevel.FINE


@pytest.mark.parametrize(("text", "verdict"), [("same", FindingLevel.FINE), ("other", FindingLevel.WRONG)])
def test_engine_and_trainer_must_have_equal_weights(text: str, verdict: FindingLevel, tmp_path: Path) -> None:
    for name, merges in (("served", "same"), ("trained", text)):
        (write_model(tmp_path / name) / "merges.txt").write_text(merges)
    settings = HoneSettings(
        aliases=ALIAS,
        engine=EngineSettings(base=str(tmp_path / "served"), device="cpu"),
        trainer=TrainerSettings(base=str(tmp_path / "trained")),
    )
    assert machine.check_base(settings).verdict is verdict


def test_a_precision_that_is_guessed_on_a_machine_without_a_gpu_is_told() -> None:
    open_ = EngineSettings(urls=BY_URL.urls, base="org/model")
    [told] = machine.check_precision(HoneSettings(aliases=ALIAS, engine=open_), "cpu")
    assert told.verdict is FindingLevel.NOTE
    assert "float32" in told.found
    assert "`device` and `dtype`" in told.todo


@pytest.mark.parametrize(
    ("more", "guessed"),
    [
        ({}, "cuda"),
        ({"device": "cuda"}, "cpu"),
        ({"dtype": "bfloat16"}, "cpu"),
        ({"urls": []}, "cpu"),
        ({"base": None}, "cpu"),
    ],
)
def test_one_that_is_said_or_that_nothing_hangs_on_is_not(more: dict[str, object], guessed: Device) -> None:
    engine = EngineSettings.model_validate({"urls": BY_URL.urls, "base": "org/model"} | more)
    assert not [*machine.check_precision(HoneSettings(aliases=ALIAS, engine=engine), guessed)]


def test_a_tracker_that_is_named_and_not_installed_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = HoneSettings(track=TrackSettings(wandb_project="p", mlflow="sqlite:///mlflow.db"))
    assert machine.check_trackers(HoneSettings()) == []
    assert [found.verdict for found in machine.check_trackers(settings)] == [FindingLevel.FINE, FindingLevel.FINE]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # the environment of the tests has them all
    wandb, mlflow = machine.check_trackers(settings)
    assert wandb.verdict is FindingLevel.WRONG
    assert "track.wandb_project" in wandb.found
    assert "hone-proxy[wandb]" in str(wandb.todo)
    assert "hone-proxy[mlflow]" in str(mlflow.todo)
