"""Which scenarios improved most is told by rewards that may be compared, and by runs that stand for their side."""

from __future__ import annotations

from recorder.views.versions.before_after import TrajectoryAttempt, most_improved_scenarios

OLD, NEW = "ver_old", "ver_new"


def run(scenario: str, version: str, reward: float | None, **given: object) -> TrajectoryAttempt:
    said = {"split": "val", "group": f"{scenario} {version}", "run": f"{scenario} {version} {reward}", "absolute": True}
    made = said | given
    return TrajectoryAttempt(
        scenario, str(made["split"]), version, str(made["group"]), str(made["run"]), reward, bool(made["absolute"])
    )


def test_what_rose_most_comes_first_held_out_before_trained_on_and_what_fell_last() -> None:
    before = [run(name, OLD, 0.5) for name in ("fell", "rose", "rose more")]
    after = [run("fell", NEW, 0.0), run("rose", NEW, 0.6), run("rose more", NEW, 0.9)]
    before.append(run("learnt", OLD, 0.0, split="train"))
    after.append(run("learnt", NEW, 1.0, split="train"))
    assert [one.scenario for one in most_improved_scenarios(before, after, 9)] == [
        "rose more",
        "rose",
        "learnt",
        "fell",
    ]
    assert [one.scenario for one in most_improved_scenarios(before, after, 1)] == ["rose more"]


def test_each_side_is_shown_by_the_run_nearest_to_its_mean() -> None:
    before = [run("a", OLD, reward) for reward in (0.0, 0.1, 1.0)]
    (one,) = most_improved_scenarios(before, [run("a", NEW, 1.0), run("a", NEW, None)], 1)
    assert (one.before.reward, one.after.reward) == (0.1, 1.0)


def test_rankings_say_nothing_beside_another_group_and_something_within_one() -> None:
    apart = [run("apart", OLD, 0.0, absolute=False)], [run("apart", NEW, 1.0, absolute=False)]
    assert most_improved_scenarios(*apart, 1)[0].rise is None
    one = [run("one", OLD, 0.25, absolute=False, group="g")], [run("one", NEW, 1.0, absolute=False, group="g")]
    assert most_improved_scenarios(*one, 1)[0].rise == 0.75


def test_scenarios_that_only_one_side_attempted_or_that_nobody_judged_are_told_apart() -> None:
    before, after = [run("a", OLD, None), run("b", OLD, 1.0)], [run("a", NEW, 1.0), run("c", NEW, 1.0)]
    assert [(one.scenario, one.rise) for one in most_improved_scenarios(before, after, 9)] == [("a", None)]
