"""Which version serves a run: the canary's draw, pins, and what the engines keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.versions import pins
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.states import VersionState

LIVE, RETIRED, CANARY, GATED = VersionState.LIVE, VersionState.RETIRED, VersionState.CANARY, VersionState.GATED


def version(number: int, state: VersionState, parent: int | None = -1, alias: str = "a") -> VersionView:
    ancestor = number - 1 if parent == -1 else parent
    fields: dict[str, Any] = dict.fromkeys(
        ("reason", "manifest_sha256", "base_fingerprint", "verified", "path"), None
    ) | {"metrics": {}, "created_at": 0.0, "state_at": float(number), "project_id": "p"}
    return VersionView(
        id=f"{alias}{number}",
        alias_id=alias,
        alias_name=alias,
        number=number,
        name=f"{alias}@{number}",
        parent_id=None if number == 0 or ancestor is None else f"{alias}{ancestor}",
        state=state,
        engine_name=f"{alias}@{number}-x",
        **fields,
    )


def chain(live: int) -> dict[str, VersionView]:
    """Versions 0 … live, each the parent of the next."""
    return {v.id: v for v in (version(n, LIVE if n == live else RETIRED) for n in range(live + 1))}


def alias(live: int, *, canary: int | None = None, share: float = 0.0, previous: int | None = None) -> AliasView:
    return AliasView(
        id="a",
        project_id="p",
        name="a",
        base_model="base",
        base_fingerprint=None,
        live_version_id=f"a{live}",
        previous_version_id=None if previous is None else f"a{previous}",
        canary_version_id=None if canary is None else f"a{canary}",
        canary_share=share,
        notes={},
        generation=0,
    )


@given(st.text(max_size=40), st.floats(0, 1))
def test_the_same_key_draws_the_same_version_and_never_loses_it_when_the_share_grows(key: str, share: float) -> None:
    drawn = pins.draw_version(alias(1, canary=2, share=share), key)
    assert drawn == pins.draw_version(alias(1, canary=2, share=share), key)
    if drawn == "a2":
        assert pins.draw_version(alias(1, canary=2, share=1.0), key) == "a2"


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_the_canary_draws_its_share(share: float) -> None:
    drawn = [pins.draw_version(alias(1, canary=2, share=share), f"key {n}") for n in range(4000)]
    assert drawn.count("a2") / len(drawn) == pytest.approx(share, abs=0.03)


def test_another_canary_draws_other_runs() -> None:
    keys = [f"key {n}" for n in range(200)]
    first = [pins.draw_version(alias(1, canary=2, share=0.5), k) == "a2" for k in keys]
    second = [pins.draw_version(alias(1, canary=3, share=0.5), k) == "a3" for k in keys]
    assert first != second


def test_without_a_canary_or_a_share_every_run_begins_on_live() -> None:
    assert pins.draw_version(alias(1), "k") == "a1"
    assert pins.draw_version(alias(1, canary=2, share=0.0), "k") == "a1"


HELD = replace(alias(2, previous=1), holdback_share=0.1, watched_until=100.0)


def test_the_version_before_is_held_back_until_the_watch_ends() -> None:
    assert pins.holdback_version(HELD, 99.0) == "a1"
    assert pins.holdback_version(HELD, 100.0) is None
    assert pins.holdback_version(alias(2, previous=1), 99.0) is None


def test_a_version_that_is_held_back_draws_its_share_beside_a_canary() -> None:
    keys = [f"key {n}" for n in range(4000)]
    alone = [pins.draw_version(HELD, key, "a1") for key in keys]
    assert alone.count("a1") / len(keys) == pytest.approx(0.1, abs=0.03)
    assert set(alone) == {"a1", "a2"}
    beside = [pins.draw_version(replace(HELD, canary_version_id="a3", canary_share=0.5), key, "a1") for key in keys]
    assert beside.count("a3") / len(keys) == pytest.approx(0.5, abs=0.03)
    assert beside.count("a1") / len(keys) == pytest.approx(0.05, abs=0.02)
    assert {pins.draw_version(HELD, key) for key in keys} == {"a2"}, "nothing is held"


def test_a_pin_on_a_version_that_is_held_back_holds_however_many_steps_it_lies_back() -> None:
    versions = chain(9)
    far = replace(alias(9, previous=1), watched_until=100.0)
    assert pins.is_pin_valid(versions["a1"], far, versions, 2)
    assert not pins.is_pin_valid(versions["a1"], replace(far, watched_until=None), versions, 2)


def test_a_pin_holds_on_ancestors_of_live_up_to_the_age_bound() -> None:
    versions = chain(5)
    held = [n for n in range(6) if pins.is_pin_valid(versions[f"a{n}"], alias(5), versions, max_age=3)]
    assert held == [2, 3, 4, 5]


def test_a_rolled_back_version_loses_its_pins_at_once() -> None:
    versions = chain(4) | {"a5": version(5, RETIRED)}
    assert not pins.is_pin_valid(versions["a5"], alias(4), versions, max_age=8)


def test_a_sibling_of_live_holds_no_pins() -> None:
    versions = chain(4) | {"a5": version(5, RETIRED), "a6": version(6, LIVE, parent=4)}
    assert not pins.is_pin_valid(versions["a5"], alias(6), versions, max_age=8)
    assert pins.is_pin_valid(versions["a3"], alias(6), versions, max_age=8)


def test_the_canary_holds_pins_until_it_is_taken_away() -> None:
    versions = chain(1) | {"a2": version(2, CANARY)}
    assert pins.is_pin_valid(versions["a2"], alias(1, canary=2, share=0.1), versions, max_age=8)
    taken = chain(1) | {"a2": version(2, RETIRED)}
    assert not pins.is_pin_valid(taken["a2"], alias(1), taken, max_age=8)


def test_a_version_of_another_alias_holds_no_pin() -> None:
    versions = chain(1)
    other = version(1, RETIRED, alias="b")
    assert not pins.is_pin_valid(other, alias(1), versions, max_age=8)


def test_ancestry_with_a_loop_ends() -> None:
    versions = {"a1": version(1, RETIRED, parent=2), "a2": version(2, LIVE, parent=1)}
    assert pins.steps_behind("a0", "a2", versions) is None


def keep(live: AliasView, versions: dict[str, VersionView], pinned: set[str], max_loras: int = 4) -> list[int]:
    kept = pins.adapters_to_keep([live], versions, pinned, max_loras=max_loras, max_age=8)
    return [v.number for v in kept]


def test_engines_keep_live_and_the_newest_pinned_and_one_free_slot() -> None:
    assert keep(alias(5), chain(5), set()) == [5]
    assert keep(alias(5), chain(5), {"a1", "a3", "a4", "a0"}) == [5, 4, 3]


def test_the_version_a_rollback_goes_to_is_kept_before_pinned_ones() -> None:
    assert keep(alias(5, previous=2), chain(5), {"a4", "a3"}) == [5, 2, 4]
    assert keep(alias(1, previous=0), chain(1), set()) == [1]


def test_versions_that_are_held_back_are_kept_before_any_other_aliass_pins() -> None:
    held = replace(alias(1, previous=0), id="b", live_version_id="b5", previous_version_id="b4", watched_until=100.0)
    others = {v.id: v for v in (version(n, LIVE if n == 5 else RETIRED, alias="b") for n in range(6))}
    kept = pins.adapters_to_keep([alias(5), held], chain(5) | others, {"a4", "a3", "a2"}, max_loras=4, max_age=8)
    assert [v.id for v in kept] == ["a5", "b5", "b4"]


def test_live_canary_and_the_newest_waiting_are_kept_whatever_the_slots() -> None:
    versions = chain(1) | {"a2": version(2, CANARY), "a3": version(3, GATED), "a4": version(4, GATED)}
    assert keep(alias(1, canary=2, share=0.1), versions, {"a0"}, max_loras=2) == [1, 2, 4]


@given(st.integers(0, 12), st.sets(st.integers(0, 12)), st.integers(2, 6))
def test_kept_versions_leave_a_slot_free_and_always_hold_live(live: int, pinned: set[int], max_loras: int) -> None:
    kept = keep(alias(live), chain(live), {f"a{n}" for n in pinned}, max_loras)
    assert len(kept) <= max_loras - 1
    assert len(kept) == len(set(kept))
    assert 0 not in kept
    assert live == 0 or live in kept
