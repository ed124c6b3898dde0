"""A client names a session and no run: which of the session's runs a call belongs to, and when it begins another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from recorder.capture.lookups.statements import MOST_RUNS
from recorder.capture.recorder import Recorder
from recorder.capture.resolver import Resolution
from recorder.messages.calls import ANYBODY, Address, KeyAccess, Message, ParentCall, RecordedCall
from recorder.settings import RecorderSettings
from recorder.states import Confidence
from recorder.store.database import Store
from recorder.views.trajectories import transcripts
from tests.recorder.talk import PROJECT, Talk, assistant, choice, request, tool_result, tool_turn, turn, user

SYSTEM = {"role": "system", "content": "You help."}
FIND = [{"type": "function", "function": {"name": "find"}}]
SEARCH = [{"type": "function", "function": {"name": "search"}}]
TASK = "Find out everything about the parcel and report it."
SUMMARY = "The parcel was sent on Monday and waits at the post office since."


class Session:
    """Calls that name one session."""

    def __init__(
        self, recorder: Recorder, name: str = "s", group: str | None = None, access: KeyAccess = ANYBODY
    ) -> None:
        self.recorder = recorder
        self.name = name
        self.address = Address(group=group, access=access)

    async def found(self, messages: Sequence[Message], *, sub_agent: bool = False, **asked: Any) -> Resolution | None:
        made = request(messages, **asked)
        access = self.address.access
        return await self.recorder.find.in_session(
            PROJECT, self.name, self.address.group, made, sub_agent=sub_agent, access=access
        )

    async def attributed(self, messages: Sequence[Message], answer: Any, **asked: Any) -> RecordedCall:
        sub_agent = asked.pop("sub_agent", False)
        found = await self.found(messages, sub_agent=sub_agent, **asked)
        assert found is not None
        ref = found.trajectory or self.recorder.new_trajectory(self.address, None, self.name)
        sampled = choice(assistant(answer)) if isinstance(answer, str) else choice(answer, finish_reason="tool_calls")
        return turn(
            ref, request(messages, **asked), [sampled], source="session_header", confidence=found.confidence,
            parent=found.parent, address=self.address,
        )  # fmt: skip

    async def call(self, messages: Sequence[Message], answer: Any, **asked: Any) -> RecordedCall:
        made = await self.attributed(messages, answer, **asked)
        await self.recorder.commit(made)
        return made


@pytest.fixture
def session(recorder: Recorder) -> Session:
    return Session(recorder)


def home(made: RecordedCall) -> str:
    return made.attribution.trajectory.id


async def test_turns_that_extend_each_other_are_one_run(store: Store, session: Session) -> None:
    first = await session.call([SYSTEM, user("?")], "OK")
    second = await session.call([SYSTEM, user("?"), assistant("OK"), user("more")], "OK")
    assert home(first) == home(second)
    assert second.attribution.parent == ParentCall(first.call_id, 0)
    assert second.attribution.confidence is Confidence.STATED
    view = await transcripts.load_trajectory(store, home(first))
    assert (view.session, view.external_id) == ("s", None)


async def test_a_second_task_of_a_session_is_a_run_of_its_own_even_where_it_says_the_same(session: Session) -> None:
    runs = [await session.call([SYSTEM, user("?")], f"answer {n}") for n in range(3)]
    assert len({home(run) for run in runs}) == 3
    for n, run in enumerate(runs):
        on = await session.call([SYSTEM, user("?"), assistant(f"answer {n}"), user("more")], "done")
        assert home(on) == home(run)


async def test_equal_runs_of_two_sessions_never_mix(recorder: Recorder) -> None:
    one, two = Session(recorder, "one"), Session(recorder, "two")
    history = [SYSTEM, user("?"), assistant("OK"), user("more")]
    firsts = [await s.call(history[:2], "OK") for s in (one, two)]
    seconds = [await s.call(history, "OK") for s in (two, one)]
    assert [home(s) for s in seconds] == [home(f) for f in reversed(firsts)]
    assert {s.attribution.confidence for s in seconds} == {Confidence.STATED}
    third = await Session(recorder, "three").found(history)
    assert third == Resolution(
        "session", Confidence.STATED, None, None
    )  # a name is never left for what another sampled


async def test_equal_runs_of_one_session_are_ambiguous(session: Session) -> None:
    runs = {home(await session.call([SYSTEM, user("?")], "OK")) for _ in range(2)}
    on = await session.call([SYSTEM, user("?"), assistant("OK"), user("more")], "done")
    assert on.attribution.confidence is Confidence.AMBIGUOUS
    assert home(on) in runs


async def test_an_edited_history_stays_by_its_last_exchange(session: Session) -> None:
    first = await session.call([SYSTEM, user("a question")], "an answer")
    moved = {"role": "system", "content": "You help. It is two o'clock."}
    second = await session.call([moved, user("a question"), assistant("an answer"), user("more")], "more of it")
    assert (home(second), second.attribution.parent) == (home(first), ParentCall(first.call_id, 0))
    trimmed = await session.call([SYSTEM, user("more"), assistant("more of it"), user("and?")], "!")
    assert (home(trimmed), trimmed.attribution.parent) == (home(first), ParentCall(second.call_id, 0))
    # the answer alone comes back in any conversation
    other = await session.call([SYSTEM, user("something else"), assistant("an answer"), user("more")], "!")
    assert home(other) != home(first)


async def test_a_compacted_history_goes_on_with_its_run(session: Session) -> None:
    first = await session.call([SYSTEM, user("?")], "OK", tools=FIND)
    asked = [SYSTEM, user("?"), assistant("OK"), user("Sum up.")]
    summary = await session.call(asked, SUMMARY, tools=FIND)
    compacted = [SYSTEM, user(f"What was done so far: {SUMMARY}")]
    after = await session.call(compacted, "Going on", tools=FIND)
    assert (home(after), after.attribution.parent) == (home(first), ParentCall(summary.call_id, 0))
    # a title is about the same words and has another head
    title = await session.call([user(f"A title for: {SUMMARY}")], "Parcel", tools=FIND)
    assert home(title) != home(first)


async def test_a_sub_agent_that_a_tool_call_starts_is_part_of_the_run(session: Session) -> None:
    call = tool_turn("id-1")
    call["tool_calls"][0]["function"]["arguments"] = f'{{"prompt": "{TASK}"}}'
    first = await session.call([SYSTEM, user("?")], call, tools=FIND)
    sub = await session.call([user(TASK)], "report", tools=SEARCH)
    assert home(sub) == home(first)
    assert home(await session.call([user("Quite another task, of nobody's run at all.")], "!", tools=SEARCH)) != home(
        first
    )


async def test_a_sub_agent_that_says_so_is_part_of_the_newest_run(session: Session) -> None:
    first = await session.call([SYSTEM, user("?")], tool_turn("id-1"), tools=FIND)
    sub = await session.call([user("task")], "report", tools=SEARCH, sub_agent=True)
    assert home(sub) == home(first)
    on = await session.call([SYSTEM, user("?"), tool_turn("id-1"), tool_result("id-1")], "done", tools=FIND)
    assert (home(on), on.attribution.parent) == (home(first), ParentCall(first.call_id, 0))


async def test_a_title_beside_a_first_call_that_runs_is_part_of_its_run(session: Session) -> None:
    main = await session.attributed([SYSTEM, user("Fix the bug")], "done", tools=FIND)
    session.recorder.begin(main)
    title = await session.call([user("A title for: Fix the bug")], "Bug")
    other = await session.call([user("A title for: Write a poem")], "Poem")
    await session.recorder.commit(main)
    assert home(title) == home(main)
    assert home(other) != home(main)


TITLES = {"role": "system", "content": "You are a title generator. You output only a title."}
TITLE = [TITLES, user("Generate a title for this conversation:\n"), user("Fix the bug in the parser")]


async def test_a_title_with_which_a_session_begins_is_an_errand_of_the_run_behind_it(
    store: Store, session: Session
) -> None:
    title = await session.call(TITLE, "Parser bug")
    first = await session.call([SYSTEM, user("Fix the bug in the parser")], tool_turn("id-1"), tools=FIND)
    heard = [SYSTEM, user("Fix the bug in the parser"), tool_turn("id-1"), tool_result("id-1")]
    last = await session.call(heard, "done", tools=FIND)
    assert home(title) == home(first) == home(last)
    await session.recorder.close(PROJECT, home(title))
    view = await transcripts.load_trajectory(store, home(title))
    assert {c.id: (c.call_kind, c.choices[0].untrainable_reason) for c in view.calls} == {
        title.call_id: ("aux", "auxiliary_call"), first.call_id: ("main", None), last.call_id: ("main", None),
    }  # fmt: skip


@pytest.mark.parametrize("title_first", [True, False])
async def test_a_title_that_runs_beside_the_first_call_is_part_of_its_run(session: Session, title_first: bool) -> None:
    begun: dict[bool, RecordedCall] = {}
    for of_title in (title_first, not title_first):
        if of_title:
            begun[of_title] = await session.attributed(TITLE, "Parser bug")
        else:
            begun[of_title] = await session.attributed([SYSTEM, user("Fix the bug in the parser")], "ok", tools=FIND)
        session.recorder.begin(begun[of_title])
    assert home(begun[True]) == home(begun[False])


@pytest.mark.parametrize(
    ("messages", "answer", "tools", "then"),
    [
        (TITLE, "Parser bug", None, "Write a poem"),  # about something else
        (TITLE, "Parser bug", None, "bug in the pars"),  # a part of a word
        (TITLE, "Look for the parser. " * 20, None, "Fix the bug in the parser"),  # no short answer
        (TITLE, "Parser bug", FIND, "Fix the bug in the parser"),  # it had tools
        ([SYSTEM, user("Fix the bug in the parser")], "ok", None, "Fix the bug in the parser"),  # the same agent
        (TITLE, "Fix the bug", None, "Fix the bug in the parser"),  # its answer is used
    ],
)
async def test_what_is_no_errand_stays_a_run_of_its_own(
    session: Session, messages: Any, answer: str, tools: Any, then: str
) -> None:
    first = await session.call(messages, answer, tools=tools)
    assert home(await session.call([SYSTEM, user(then)], "done", tools=SEARCH)) != home(first)


async def test_a_run_of_several_calls_is_no_errand(session: Session) -> None:
    first = await session.call(TITLE, "Parser bug")
    await session.call([*TITLE, assistant("Parser bug"), user("shorter")], "Bug")
    work = await session.call([SYSTEM, user("Fix the bug in the parser")], "done", tools=FIND)
    assert home(work) != home(first)


async def test_a_retold_turn_is_gone_on_from_and_not_the_one_before_it(session: Session) -> None:
    first = await session.call([SYSTEM, user("?")], "Hm")
    history = [SYSTEM, user("?"), assistant("Hm"), user("So?")]
    second = await session.call(history, "On Monday\n")
    third = await session.call([*history, assistant("On Monday"), user("Thanks")], "Welcome")
    assert home(third) == home(first)
    assert third.attribution.parent == ParentCall(second.call_id, 0)


async def test_a_retry_stays_in_its_session(recorder: Recorder) -> None:
    one, two = Session(recorder, "one"), Session(recorder, "two")
    broken = [await s.attributed([user("?")], "") for s in (one, two)]
    for made in broken:
        recorder.begin(made)
    again = await two.call([user("?")], "OK", retry_count=1)
    assert home(again) == home(broken[1])


async def test_a_session_outlives_its_runs_end(store: Store, session: Session) -> None:
    first = await session.call([SYSTEM, user("?")], "OK")
    await session.recorder.close(PROJECT, home(first))
    later = await session.call([SYSTEM, user("?"), assistant("OK"), user("more")], "done")
    view = await transcripts.load_trajectory(store, home(later))
    assert (view.continues, view.session) == (home(first), "s")
    again = [SYSTEM, user("?"), assistant("OK"), user("more"), assistant("done"), user("!")]
    assert home(await session.call(again, "bye")) == home(later)


async def test_groups_keep_their_sessions_apart(recorder: Recorder) -> None:
    history = [SYSTEM, user("?"), assistant("OK"), user("more")]
    await Session(recorder, "s", "a").call(history[:2], "OK")
    found = await Session(recorder, "s", "b").found(history)
    assert found is not None
    assert found.trajectory is None


async def test_a_name_that_everybody_uses_tells_nothing(session: Session) -> None:
    for n in range(MOST_RUNS + 1):
        await session.call([user(f"task {n}")], "OK")
    assert await session.found([user("one more")]) is None


async def test_what_one_process_wrote_another_finds(store: Store, session: Session) -> None:
    first = await session.call([SYSTEM, user("?")], "OK")
    other = Recorder(store, RecorderSettings())
    await other.start()
    try:
        later = await Session(other).call([SYSTEM, user("?"), assistant("OK"), user("more")], "done")
        assert (home(later), later.attribution.parent) == (home(first), ParentCall(first.call_id, 0))
    finally:
        await other.stop()


async def test_a_run_by_its_path_also_knows_a_turn_behind_an_edited_history(talk: Talk) -> None:
    at = Address(trajectory="run")
    first = await talk.call([SYSTEM, user("a question")], "an answer", at)
    edited = [user("now without a system message"), user("a question"), assistant("an answer"), user("more")]
    second = await talk.call(edited, "!", at)
    assert second.attribution.parent == ParentCall(first.call_id, 0)


# --- several keys under one name


async def test_anothers_runs_neither_take_a_call_nor_fill_the_session(recorder: Recorder) -> None:
    one = Session(recorder, access=KeyAccess("key_1", everywhere=False))
    two = Session(recorder, access=KeyAccess("key_2", everywhere=False))
    own = await one.call([user(TASK)], "Done.")
    for number in range(MOST_RUNS + 1):
        await two.call([user(f"another task, number {number}")], "Done.")
    history = [user(TASK), assistant("Done."), user("And now?")]
    assert (await one.call(history, "Yes.")).attribution.trajectory.id == own.attribution.trajectory.id
    found = await two.found(history)
    assert found is None  # a name that too many of its own runs share
    other = Session(recorder, access=KeyAccess("key_3", everywhere=False))
    assert (await other.call(history, "Yes.")).attribution.trajectory.id != own.attribution.trajectory.id


async def test_an_errand_beside_anothers_call_is_a_run_of_its_own(recorder: Recorder) -> None:
    one = Session(recorder, access=KeyAccess("key_1", everywhere=False))
    two = Session(recorder, access=KeyAccess("key_2", everywhere=False))
    recorder.begin(await one.attributed([user(TASK)], "Working.", tools=FIND))
    for session, beside in ((one, True), (two, False)):
        found = await session.found([user(f"Write a title for: {TASK}")])
        assert found is not None
        assert (found.trajectory is not None) is beside
