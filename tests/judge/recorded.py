"""Groups made the way real ones are: calls committed through the recorder into a real store."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recorder.capture.recorder import Recorder
from recorder.ids import new_id
from recorder.messages.calls import (
    Address,
    Attribution,
    RecordedCall,
    RecordedRequest,
    SampledChoice,
    SamplingParameters,
)
from recorder.registry.aliases import ensure_alias
from recorder.settings import RecorderSettings
from recorder.states import CallState, Confidence, Purpose
from recorder.store.database import Project, Store

PROJECT = "default"
Answer = str | Sequence[Mapping[str, Any]]  # the last answer, or what follows the user's question, answer last
Calls = tuple[Answer, ...]  # one for each call of a run: its agent may have changed what it told before


class Recorded:
    """Makes groups in a store."""

    def __init__(self, store: Store, recorder: Recorder, alias_id: str) -> None:
        self.store = store
        self._recorder = recorder
        self.alias_id = alias_id

    @classmethod
    async def start(cls, store: Store) -> "Recorded":
        alias = await ensure_alias(Project(store, PROJECT), "helpdesk", "base", None)
        recorder = Recorder(store, RecorderSettings())
        await recorder.start()
        return cls(store, recorder, alias.id)

    async def stop(self) -> None:
        await self._recorder.stop()

    async def group(
        self, name: str, answers: Sequence[Answer | Calls], *, purpose: Purpose = Purpose.TRAIN, size: int | None = None
    ) -> tuple[str, list[str]]:
        """A group of declared size with one ended run for each answer. Returns its id and theirs, in order."""
        members = []
        group_id = None
        for number, answer in enumerate(answers):
            address = Address(
                trajectory=str(number), group=name, group_size=size or len(answers), purpose=purpose, done=True
            )
            *before, last = answer if isinstance(answer, tuple) else (answer,)
            for earlier in before:
                await self._run(replace(address, done=False), earlier)
            group_id, member = await self._run(address, last)
            members.append(member)
        assert group_id is not None
        return group_id, members

    async def _run(self, address: Address, answer: Answer) -> tuple[str | None, str]:
        said = [{"role": "assistant", "content": answer}] if isinstance(answer, str) else list(answer)
        request = RecordedRequest(
            dialect="chat",
            endpoint="/v1/chat/completions",
            model="helpdesk",
            stream=False,
            messages=[
                {"role": "system", "content": "You help."},
                {"role": "user", "content": "Where is order 4821?"},
                *said[:-1],
            ],
            tools=[{"type": "function", "function": {"name": "find_order"}}],
            response_format=None,
            rest={},
            body_hash=new_id("body").encode()[-16:],
            sampling=SamplingParameters(),
        )
        ref = await self._recorder.trajectory_at(PROJECT, self.alias_id, address, request, None)
        now = time.time()
        await self._recorder.commit(
            RecordedCall(
                call_id=new_id("call"),
                project_id=PROJECT,
                address=address,
                attribution=Attribution("path", Confidence.STATED, ref),
                request=request,
                state=CallState.COMPLETE,
                alias_id=self.alias_id,
                version_id=None,
                base_fingerprint=None,
                prompt_token_ids=[1, 2, 3],
                choices=[SampledChoice(0, said[-1], [4, 5], [-0.1, -0.2], "stop")],
                usage=None,
                response_meta=None,
                http_status=200,
                error=None,
                started_at=now,
                first_token_at=now,
                finished_at=now,
            )
        )
        return ref.group_id, ref.id
