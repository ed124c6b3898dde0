"""A request of a page to `hone up`: to start what hone.toml declares, or to stop it.

Owns: what may be started, by name, and the file that holds the one request. Refuses: commands, paths and versions of
the caller's; `hone up` builds the command from its own settings (`proxy.supervision.jobs`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from proxy.settings.hone import HoneSettings
from recorder.processes import file_modes

REQUEST_FILE: Final = "start.json"
CAMPAIGN: Final = "campaign"
TRIAL: Final = "trial"  # of a judge recipe on one group
_GROUP_ID: Final = re.compile(r"[a-z]+_[0-9a-z]{26}")
_PARTS: Final = (("val_scenarios", "validation"), ("test_scenarios", "test"), ("scenarios", "training"))


@dataclass(frozen=True, slots=True)
class Job:
    """What may be started. `arguments`: of `hone`; `about`: a sentence for people."""

    name: str
    arguments: tuple[str, ...]
    about: str

    @property
    def command(self) -> str:
        """The command as a person types it."""
        return " ".join(("hone", *(_quoted(one) for one in self.arguments)))


def _quoted(word: str) -> str:
    return word if word.isprintable() and not set(word) & set(" \"'\\$`") else json.dumps(word)


@dataclass(frozen=True, slots=True)
class StartRequest:
    """Start or stop a job. `by`: the id of the key that asked; `recipe` and `group` (its id): of a trial."""

    action: Literal["start", "stop"]
    job: str
    by: str
    recipe: str = ""
    group: str = ""


def declared_jobs(settings: HoneSettings) -> list[Job]:
    """What hone.toml declares completely: the campaign, and an evaluation on each of its files of scenarios."""
    campaign = settings.campaign
    if campaign.scenarios is None or not (campaign.agent or campaign.replay):
        return []
    jobs = [Job(CAMPAIGN, ("train",), "Trains over the scenarios of [campaign]; an unfinished campaign goes on.")]
    for field, part in _PARTS:
        file = getattr(campaign, field)
        if file is not None:
            arguments = ("eval", "--versions", "live,base", "--scenarios", str(file))
            jobs.append(Job(f"evaluation-{part}", arguments, f"Compares live and base on the {part} scenarios."))
    return jobs


def declared_recipes(settings: HoneSettings) -> list[str]:
    """The judge recipes that hone.toml declares and that judge anything."""
    judge = settings.judge
    return [name for name in judge.known_recipes() if judge.by_recipe(name).in_force()]


def trial_job(recipe: str, group: str) -> Job:
    """Judge a group by a recipe, without storing a score."""
    return Job(TRIAL, ("score", group, "--judge-recipe", recipe), "Judges a group by a recipe; stores no score.")


def requested_job(settings: HoneSettings, request: StartRequest) -> Job | None:
    """The job of a request; None if hone.toml does not declare it."""
    if request.job == TRIAL:
        known = request.recipe in declared_recipes(settings) and _GROUP_ID.fullmatch(request.group)
        return trial_job(request.recipe, request.group) if known else None
    return next((one for one in declared_jobs(settings) if one.name == request.job), None)


def leave_request(data: Path, request: StartRequest) -> None:
    """Leave a request for the `hone up` of this data folder. Raises FileExistsError while another one waits."""
    draft = data / f"{REQUEST_FILE}.{secrets.token_hex(8)}"
    file_modes.write_private(draft, json.dumps(asdict(request)))
    try:
        os.link(draft, data / REQUEST_FILE)  # unlike a rename, it replaces no other request
    finally:
        draft.unlink()


def has_request(data: Path) -> bool:
    """Whether a request waits."""
    return (data / REQUEST_FILE).exists()


def read_request(data: Path) -> StartRequest | None:
    """The request that waits; None if there is none, or if it is not a request."""
    try:
        content = json.loads((data / REQUEST_FILE).read_text("utf-8"))
        action = content["action"]
        if action not in ("start", "stop"):
            return None
        texts = (str(content.get(name, "")) for name in ("recipe", "group"))
        return StartRequest(action, str(content["job"]), str(content["by"]), *texts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def drop_request(data: Path) -> None:
    """Delete the request, once it is served or refused."""
    with contextlib.suppress(FileNotFoundError):
        (data / REQUEST_FILE).unlink()
