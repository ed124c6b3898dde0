"""Which parsers `hone doctor` looks up: those of an engine that Hone starts, unless a plug-in may add them."""

from __future__ import annotations

from proxy.doctor import checkup
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import EngineSettings
from recorder.base.findings import FindingLevel


def test_a_plugin_of_the_engine_may_add_any_name() -> None:
    settings = HoneSettings(engine=EngineSettings(base="b", tool_call_parser="mine", reasoning_parser="qwen3"))
    assert [name for _, name in checkup.parsers_to_find(settings)] == ["mine", "qwen3"]
    settings.engine.args = ["--tool-parser-plugin", "/p.py"]
    assert [name for _, name in checkup.parsers_to_find(settings)] == ["qwen3"]
    settings.engine.args = ["--reasoning-parser-plugin=/p.py"]
    assert [name for _, name in checkup.parsers_to_find(settings)] == ["mine"]


def test_no_parser_is_not_looked_up() -> None:
    settings = HoneSettings(engine=EngineSettings(base="b", tool_call_parser=""))
    assert checkup.parsers_to_find(settings) == ()


def test_parsers_of_an_engine_by_url_are_a_note() -> None:
    settings = HoneSettings(engine=EngineSettings(urls=["http://127.0.0.1:9"], base="b"))
    [found] = checkup.check_remote_parsers(settings)
    assert found.verdict is FindingLevel.NOTE
    assert checkup.check_remote_parsers(HoneSettings(engine=EngineSettings(base="b"))) == []
