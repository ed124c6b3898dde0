"""Learners of several processes: one for each GPU, on the nodes that torchrun is told of, with flags that it has."""

from __future__ import annotations

import tomllib
from typing import Any

from torch.distributed.run import get_args_parser

from proxy.settings.hone import HoneSettings
from tests.deploy.reading import DEPLOY, hones, manifests, of_kind, services


def learner() -> tuple[dict[str, Any], dict[str, Any]]:
    """The job of several nodes, and its container."""
    job = of_kind("several-nodes", "Job")["learner"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    return job["spec"], container


def test_torchrun_starts_a_process_for_each_gpu_of_each_node() -> None:
    job, container = learner()
    assert container["command"] == ["torchrun"]
    found = get_args_parser().parse_args([one.replace("$(NODE_RANK)", "1") for one in container["args"]])
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", int(found.nnodes), 2)
    assert int(found.nproc_per_node) == container["resources"]["limits"]["nvidia.com/gpu"]
    assert found.no_python
    assert [found.training_script, *found.training_script_args] == ["hone", "learn", "--alias=agent"]
    config = of_kind("several-nodes", "ConfigMap")["hone"]["data"]["hone.toml"]
    assert "agent" in tomllib.loads(config)["aliases"]


def test_pods_are_found_under_the_name_of_the_first() -> None:
    job, container = learner()
    service = of_kind("several-nodes", "Service")["learner"]["spec"]
    assert f"--master-addr=learner-0.{job['template']['spec']['subdomain']}" in container["args"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert f"--master-port={service['ports'][0]['port']}" in container["args"]
    assert container["ports"][0]["containerPort"] == service["ports"][0]["port"]


def test_learners_alone_reach_learners() -> None:
    """They send each other Python objects."""
    policies = [one["spec"] for one in manifests("several-nodes") if one["kind"] == "NetworkPolicy"]
    component = {"matchLabels": {"app.kubernetes.io/component": "learner"}}
    ways = [way for one in policies if one["podSelector"] == component for way in one.get("ingress", [])]
    [way] = ways
    assert [one["podSelector"]["matchExpressions"][0]["values"] for one in way["from"]] == [["learner"]]


def test_compose_gives_the_learner_a_gpu_for_each_process_and_the_engine_another() -> None:
    settings = HoneSettings.model_validate(tomllib.loads((DEPLOY / "compose" / "hone.gpus.toml").read_text()))
    gpus = {name: _gpus(services()[name]) for name in ("engine-gpus", "learner-gpus")}
    assert len(gpus["learner-gpus"]) == settings.trainer.processes == 2
    assert not set(gpus["learner-gpus"]) & set(gpus["engine-gpus"])
    assert "compose: learner-gpus" in {one.where for one in hones()}


def _gpus(service: dict[str, Any]) -> list[str]:
    [device] = service["deploy"]["resources"]["reservations"]["devices"]
    found: list[str] = device["device_ids"]
    return found
