"""Whether each process of a trainer has a GPU of its own (`trainer.processes`).

Refuses: what settings contradict one another without a look at the machine (`trainer.settings`, `proxy.settings.hone`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from proxy.doctor.machine import check_weights
from proxy.engine.device import detect_device
from proxy.settings.hone import HoneSettings
from recorder.base.findings import Finding, FindingLevel

CHECK: Final = "trainer processes"


def check_processes(settings: HoneSettings, there: Sequence[float]) -> list[Finding]:
    """One finding about several processes; none for a single one. `there`: each GPU's memory in GiB."""
    trainer = settings.trainer
    if trainer.processes == 1 or not check_weights(settings):
        return []
    if not there or trainer.device == "cpu":
        text = f"{trainer.processes} processes train on the CPU; threads of each: {trainer.threads}."
        return [Finding(CHECK, FindingLevel.FINE, text)]
    gpus = trainer.gpus or list(range(len(there)))
    free = [gpu for gpu in gpus if gpu < len(there) and gpu not in _engines(settings)]
    if len(free) < trainer.processes:
        return [_too_few(settings, free, len(there))]
    if not trainer.gpus and free[: trainer.processes] != gpus[: trainer.processes]:
        text = f"the {trainer.processes} processes of the trainer use the first GPUs, of which the engine uses some."
        todo = f"Set trainer.gpus = {free[: trainer.processes]}."
        return [Finding(CHECK, FindingLevel.WRONG, text, todo, stops=True)]
    text = f"{trainer.processes} processes train, on GPU {', '.join(map(str, free[: trainer.processes]))}."
    return [Finding(CHECK, FindingLevel.FINE, text)]


def _engines(settings: HoneSettings) -> Sequence[int]:
    """The GPUs of an engine that Hone starts; without `engine.gpus` it uses the first."""
    engine = settings.engine
    if engine.urls or engine.base is None or detect_device(engine) == "cpu":
        return ()
    return engine.gpus or (0,)


def _too_few(settings: HoneSettings, free: Sequence[int], there: int) -> Finding:
    trainer = settings.trainer
    where = "trainer.gpus names" if trainer.gpus else "this machine has"
    text = (
        f"trainer.processes is {trainer.processes}, and {where} {len(free)} of {there} GPUs that the engine does not "
        "use: each process needs one of its own."
    )
    todo = f"Set trainer.processes = {max(1, len(free))}, or give the trainer more GPUs."
    return Finding(CHECK, FindingLevel.WRONG, text, todo, stops=True)
