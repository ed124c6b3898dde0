"""What the dashboard and the rules ask Prometheus for is what /metrics says: families, labels, and labels' values."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.metrics import Metrics
from proxy.store_metrics import StoreMetrics
from recorder.capture.recorder import Recorder
from recorder.registry.replicas import ReplicaState
from recorder.settings import RecorderSettings
from recorder.states import CallState, GroupState
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from tests.deploy.reading import CLUSTERS, DEPLOY, ROOT, documents, of_kind, tool
from tests.recorder.rows import PROJECT, Rows
from trainer.trackers.event_figures import figure_names

RULES = DEPLOY / "prometheus" / "hone.rules.yml"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "hone.json"
_OF_A_TARGET = {"instance", "job"}  # labels that Prometheus itself gives
_VALUES: dict[tuple[str, str], set[str]] = {
    ("hone_calls_total", "state"): set(CallState),
    ("hone_groups", "state"): set(GroupState),
    ("hone_engines", "state"): set(get_args(ReplicaState)),
    ("hone_last_step", "figure"): {one.pattern.removeprefix("train/") for one in figure_names()},
}


def expressions() -> Iterator[str]:
    for group in documents(RULES)[0]["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    yield from of_dashboard()


def of_dashboard() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A store that has an alias."""
    store = await open_store(tmp_path / "data", RecorderSettings(), migrate=True)
    await Rows(store).alias()
    yield store
    await store.close()


@pytest.fixture
async def page(store: Store) -> str:
    """/metrics of a proxy."""
    return await _page(store)


async def _page(store: Store) -> str:
    figures = Metrics(Recorder(store, RecorderSettings()))
    figures.call("chat", "helpdesk@0", "complete", 1.0, 0.1)
    figures.tool_call("orders", "complete", 0.1)
    of_store = StoreMetrics(Project(store, PROJECT), RecorderSettings())
    return (figures.text() + await of_store.text()).decode()


def families(page: str) -> set[str]:
    """Every name that can be asked for, those without a sample too."""
    named = set()
    for family in text_string_to_metric_families(page):
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        named |= {family.name + end for end in ends}
    return named


async def test_every_metric_that_is_asked_for_is_shown(page: str) -> None:
    asked = {name for text in expressions() for name in re.findall(r"\bhone_\w+", text)}
    assert asked - families(page) == set()
    assert len(asked) > 20


async def test_every_label_that_is_selected_by_has_such_a_value(page: str) -> None:
    shown: dict[tuple[str, str], set[str]] = dict(_VALUES)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            for label, value in sample.labels.items():
                shown.setdefault((sample.name, label), set()).add(value)
    for name, label, values in _matchers():
        if label not in _OF_A_TARGET:
            assert set(values.split("|")) <= shown[name, label], f"{name}{{{label}={values}}}"


def _matchers() -> Iterator[tuple[str, str, str]]:
    for text in expressions():
        for name, inside in re.findall(r"\b(\w+)\{([^}]*)\}", text):
            for label, values in re.findall(r'(\w+)[=!]~?"([^"]*)"', inside):
                yield name, label, values


async def test_the_page_tells_what_each_figure_is(store: Store) -> None:
    """Every family with its labels and its help, in the order of /metrics."""
    own, of_store = (
        Metrics(Recorder(store, RecorderSettings())),
        StoreMetrics(Project(store, PROJECT), RecorderSettings()),
    )
    await of_store.text()
    told = [
        (
            family.name + ("_total" if family.type == "counter" else ""),
            ", ".join(vars(family)["_labelnames"]),
            family.documentation,
        )
        for figures in (own, of_store)
        for family in figures.collect()
    ]
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    assert re.findall(r"^\| `(hone_\w+)` \| (.*?) ?\| (.+) \|$", page, re.MULTILINE) == told


def test_the_page_tells_what_each_alert_means() -> None:
    alerts = {rule["alert"] for group in documents(RULES)[0]["groups"] for rule in group["rules"]}
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    assert set(re.findall(r"\bHone[A-Z]\w+", page)) == alerts


async def test_an_alert_on_a_rise_sees_the_first_one(store: Store) -> None:
    """A count that begins at 1 does not rise. Calls go on, so that theirs is seen by the next."""
    own, of_store = (
        Metrics(Recorder(store, RecorderSettings())),
        StoreMetrics(Project(store, PROJECT), RecorderSettings()),
    )
    page = (own.text() + await of_store.text()).decode()
    shown = {sample.name for family in text_string_to_metric_families(page) for sample in family.samples}
    rules = [rule["expr"] for group in documents(RULES)[0]["groups"] for rule in group["rules"]]
    rising = {name for text in rules for name in re.findall(r"increase\((\w+)", text)}
    assert rising - shown == {"hone_calls_total"}
    assert len(rising) > 3


def test_prometheus_reads_every_question_of_the_dashboard(tmp_path: Path) -> None:
    asked = [text.replace("$__rate_interval", "5m") for text in of_dashboard()]
    rules = [{"record": f"asked:{n}", "expr": text} for n, text in enumerate(asked)]
    (tmp_path / "asked.yml").write_text(json.dumps({"groups": [{"name": "asked", "rules": rules}]}))
    done = subprocess.run(
        [tool("promtool", "Debian's prometheus"), "check", "rules", "asked.yml"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_job_has_the_name_that_the_rules_ask_for() -> None:
    [scraped] = documents(DEPLOY / "prometheus" / "prometheus.yml")[0]["scrape_configs"]
    asked = {job for text in expressions() for job in re.findall(r'job="(\w+)"', text)}
    assert asked == {scraped["job_name"]}
    [monitor] = documents(DEPLOY / "kubernetes" / "monitoring" / "servicemonitor.yaml")
    for cluster in CLUSTERS:
        labels = of_kind(cluster, "Service")["proxy"]["metadata"]["labels"]
        assert labels.items() >= monitor["spec"]["selector"]["matchLabels"].items()
        assert labels[monitor["spec"]["jobLabel"]] == scraped["job_name"], "else the operator calls it as the Service"


def test_a_panel_stands_on_no_other() -> None:
    taken: dict[tuple[int, int], str] = {}
    ids = set()
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    for panel in panels:
        at = panel["gridPos"]
        ids.add(panel["id"])
        for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            assert cell not in taken, (panel["title"], taken[cell])
            assert cell[0] < 24, panel["title"]
            taken[cell] = panel["title"]
    assert len(ids) == len(panels)
