"""What was sent is remembered over processes, and over a kill in the middle of a line."""

from __future__ import annotations

from pathlib import Path

from trainer.trackers.process import SentKeys


def test_what_was_sent_is_known_to_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "tracking" / "c.sent"
    first = SentKeys(path)
    first.add("step 1")
    first.close()
    second = SentKeys(path)
    assert "step 1" in second
    assert "step 2" not in second
    assert len(second) == 1
    second.close()


def test_a_torn_line_is_no_event_and_spoils_none(tmp_path: Path) -> None:
    path = tmp_path / "c.sent"
    path.write_text("step 1\nstep")
    torn = SentKeys(path)
    torn.add("step 2")
    torn.close()
    again = SentKeys(path)
    assert all(key in again for key in ("step 1", "step 2"))
    again.close()
