"""The list of invariants, in the order of checking, and the check of all of them. Refuses: printing.

A store in use changes between two reads of a check. So a check that fails runs a second time, and only violations that
both runs found are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from recorder.maintenance.integrity import calls, groups, versions
from recorder.maintenance.integrity.reader import Check, CheckReader, Violation
from recorder.store.database import Store

CHECKS: Final[Sequence[Check]] = (
    calls.no_call_is_open_behind_a_process_that_is_gone,
    calls.trajectories_end_once_and_say_when,
    calls.the_calls_of_a_trajectory_form_a_tree,
    calls.every_parent_is_there,
    calls.what_may_be_trained_on_is_whole,
    calls.prompts_resolve_and_their_hashes_agree,
    calls.messages_that_are_referred_to_exist,
    calls.blobs_that_are_referred_to_exist,
    calls.what_is_searched_was_said_in_a_call,
    calls.every_message_is_needed,
    calls.every_blob_is_needed,
    groups.claimed_groups_have_a_holder,
    groups.running_attempts_have_a_holder,
    groups.scored_groups_have_their_score,
    groups.members_of_closed_groups_have_ended,
    groups.excluded_groups_say_why,
    groups.excluded_members_say_why,
    versions.aliases_point_at_the_versions_that_say_so,
    versions.versions_descend_from_the_base,
    versions.one_version_at_a_time_waits_for_its_decision,
    versions.what_the_gate_accepted_came_from_the_version_it_replaced,
    versions.written_versions_were_made_by_a_step,
    versions.versions_in_the_making_have_a_trainer,
    groups.trained_trajectories_taught_the_live_ancestry,
    groups.groups_are_where_their_versions_are,
    groups.only_training_trajectories_were_trained_on,
    groups.drift_sets_were_never_trained_on,
    groups.members_that_taught_nothing_say_why,
    versions.adapters_of_versions_that_may_serve_are_there,
    versions.every_folder_has_a_version,
)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one invariant. `rows` counts the rows that its first run read."""

    name: str
    title: str
    rows: int
    violations: Sequence[Violation]


async def check_store(
    store: Store,
    data: Path,
    heard: Callable[[CheckResult], None] = lambda _: None,
    shared: Collection[str] = (),
) -> list[CheckResult]:
    """Check every invariant; call `heard` with each result. `shared`: names of the adapters at `adapters.url`."""
    done = []
    for check in CHECKS:
        done.append(await _checked(check, lambda: CheckReader(store, data, shared)))
        heard(done[-1])
    return done


async def _checked(check: Check, reader: Callable[[], CheckReader]) -> CheckResult:
    look = reader()
    found = [violation async for violation in check(look)]
    if found:
        again = {violation async for violation in check(reader())}
        found = [violation for violation in dict.fromkeys(found) if violation in again]
    return CheckResult(_name(check), _title(check), look.rows_seen, found)


def _name(check: Check) -> str:
    return check.__name__


def _title(check: Check) -> str:
    return (check.__doc__ or check.__name__).splitlines()[0]
