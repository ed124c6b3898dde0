"""What `make live` reads from the store when it is over, from a store that real steps and decisions were written to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from examples.live.record import LIVE, read_written
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from tests.recorder.descending import line
from tests.recorder.rows import Rows


async def test_decisions_steps_and_what_was_trained_are_read_oldest_first(tmp_path: Path) -> None:
    store = await open_store(tmp_path, RecorderSettings(), migrate=True)
    try:
        alias = await line(Rows(store))
        for how in ("live", "bad"):
            await alias.traffic(2)
            await alias.train()
            await alias.decide(how)
    finally:
        await store.close()
    written = await read_written(tmp_path, RecorderSettings())
    assert [(one.version, one.move) for one in written.decisions] == [
        ("helpdesk@1", LIVE),
        ("helpdesk@2", "rejected"),
    ]
    assert [step.number for step in written.steps] == [1, 2]
    assert Counter(one.code for one in written.told) == {"trained": 2}  # the rejected version's runs are not
    calls = {name: len(written.last_calls[id_]) for name, id_ in ((d.version, d.version_id) for d in written.decisions)}
    assert calls == {"helpdesk@1": 2, "helpdesk@2": 2}
