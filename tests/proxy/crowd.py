"""A crowd of simulated agents before the real attribution: random interleaved conversations, and who is right.

Each agent keeps its own history and sends it back in one of eight echo styles, three of which retell what was sampled
(white space trimmed, a stop string and notes appended, tool calls as text); it branches, edits, trims, compacts, is
cut off and sends again, or runs as one of several that are equal. What it names varies: nothing, a path, a session, a
cache key of its own or everybody's, a trace. Calls overlap, on several proxies over one store. Where there are keys,
impostors with another key name what somebody else named, and send his history as theirs. The truth is which agent made
a call; it is never shown to the code under test.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import count
from random import Random
from typing import Any

from proxy.admission.address import AddressSource, StatedAddress
from proxy.attribution.attributor import Attributor
from proxy.attribution.hints import read_hints
from proxy.errors import Forbidden
from proxy.versions.routing import Target
from recorder.capture.recorder import Recorder
from recorder.ids import new_id
from recorder.messages.calls import (
    Address,
    Attribution,
    KeyAccess,
    RecordedCall,
    RecordedRequest,
    SampledChoice,
    SamplingParameters,
)
from recorder.states import CallState, Confidence

PROJECT = "default"
TRAINED = (Confidence.STATED, Confidence.EXACT, Confidence.NEW)
FIND = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
NAMES = (
    "nothing", "nothing", "nothing", "nothing", "nothing", "path", "session", "metadata", "key", "shared key",
    "session of several", "trace", "shared trace", "litellm trace a request",
)  # fmt: skip
TASKS = ("Where is my order 4821?", "Cancel order 17.", "Hello")
ANSWERS = (
    "OK", "OK\n", "OK\nIt arrives on Monday.", "It arrives on Monday.", "\n\nIt arrives on Monday. ",
    "Let me look at that for you, one moment please.",
)  # fmt: skip
TRIMS, APPENDS, WRITES = 5, 6, 7  # echo styles that retell
FOLLOW_UPS = ("And now?", "Thanks", "go on")

Message = dict[str, Any]


@dataclass
class Agent:
    """One agent and what it remembers."""

    number: int
    naming: str
    session: str
    proxies: Sequence[int]
    echo: int
    task: str
    moving_head: bool  # its system message changes with every call
    tools: list[Any] | None
    key: str = ""  # the family of its key; "": the proxy has none
    model: Agent | None = None  # whose names, and sometimes history, it takes for its own
    stole: bool = False
    history: list[Message] = field(default_factory=list)  # of sampled turns as they were sampled
    past: list[list[Message]] = field(default_factory=list)  # histories that end in an answer
    homes: set[str] = field(default_factory=set)  # trajectories of its calls so far
    answered: set[str] = field(default_factory=set)  # … in which it was answered
    edited: bool = False
    lost: bool = False  # an answer never reached it: it was answered twice
    turns: int = 0
    retries: int = 0
    ended: bool = False


@dataclass
class Pending:
    """A call that waits for its answer."""

    agent: Agent
    recorder: Recorder
    turn: RecordedCall
    sent: list[Message]
    body: list[Message]


@dataclass
class Tally:
    """What was placed, and how."""

    calls: int = 0
    wrong: list[str] = field(default_factory=list)
    ways: Counter[tuple[str, str]] = field(default_factory=Counter)
    decidable: int = 0
    missed: list[str] = field(default_factory=list)
    undecidable: int = 0
    split: int = 0  # calls that went on with a run and opened a trajectory of their own
    crossed: list[str] = field(default_factory=list)  # calls in a run that another key made
    refused: int = 0  # calls that stated the address of one
    stolen: int = 0  # calls with another key's history


class Crowd:
    """Plays conversations through attributors and recorders that share a store."""

    def __init__(
        self, seed: int, doors: Sequence[tuple[Attributor, Recorder]], target: Target, keys: Sequence[str] = ("",)
    ) -> None:
        self._keys = keys
        self._owners: dict[str, str] = {}  # trajectory → the key whose call came first
        self._rng = Random(seed)
        self._seed = seed
        self._doors = doors
        self._target = target
        self._numbers = count(1)
        self._pending: list[Pending] = []
        self._agents: list[Agent] = []
        self._sampled: dict[str, set[str]] = {}  # a conversation up to a sampled turn → trajectories that hold it
        self._asked: dict[str, set[str]] = {}  # a conversation that was answered → trajectories that answered it
        self._closed: set[str] = set()
        self.tally = Tally()

    async def play(self, conversations: int, at_once: int = 8) -> Tally:
        """Let so many agents live their lives."""
        begun = 0
        while begun < conversations or self._pending or any(not a.ended for a in self._agents):
            running = [a for a in self._agents if not a.ended]
            if begun < conversations and len(running) < at_once:
                made = self._new_agents()
                self._agents += made
                begun += len(made)
                continue
            idle = [a for a in running if all(p.agent is not a for p in self._pending)]
            if self._pending and (not idle or self._rng.random() < 0.5):
                await self._end_call(self._pending.pop(self._rng.randrange(len(self._pending))))
            elif idle:
                await self._act(self._rng.choice(idle))
        return self.tally

    # --- agents

    def _new_agents(self) -> list[Agent]:
        rng = self._rng
        several = rng.randint(2, 4) if rng.random() < 0.3 else 1
        naming, task = rng.choice(NAMES), rng.choice(TASKS)
        if rng.random() < 0.4:
            task = f"{task} ({next(self._numbers)})"
        moving = naming in ("path", "session", "metadata") and rng.random() < 0.3
        tools = FIND if rng.random() < 0.5 else None
        key = rng.choice(self._keys)
        made = [
            Agent(
                number := next(self._numbers),
                naming,
                f"s{number}",
                sorted(rng.sample(range(len(self._doors)), rng.randint(1, len(self._doors)))),
                rng.randrange(5 if moving else 8),  # nobody could follow a turn retold behind a head that moves
                task,
                moving,
                tools,
                key,
            )
            for _ in range(several if naming != "session of several" else 1)
        ]
        return made + [self._impostor_of(one) for one in made if len(self._keys) > 1 and rng.random() < 0.5]

    def _impostor_of(self, agent: Agent) -> Agent:
        other = self._rng.choice([key for key in self._keys if key != agent.key])
        return replace(
            agent, number=next(self._numbers), key=other, model=agent, proxies=list(range(len(self._doors))),
            history=[], past=[], homes=set(), answered=set(),
        )  # fmt: skip

    async def _act(self, agent: Agent) -> None:
        rng = self._rng
        if agent.model is not None and agent.model.past and rng.random() < 0.5:
            agent.history, agent.stole = list(rng.choice(agent.model.past)), True
            self.tally.stolen += 1
            self._say_more(agent)
        elif not agent.history:
            agent.history = [{"role": "user", "content": agent.task}]
        elif agent.turns >= 2 and rng.random() < 0.2:
            await self._end_agent(agent)
            return
        elif agent.past and rng.random() < 0.12:
            agent.history = list(rng.choice(agent.past))  # a branch
            self._say_more(agent)
        elif rng.random() < 0.06 and len(agent.history) > 3:
            self._edit(agent)
        twins = any(p.sent == agent.history for p in self._pending)  # one of them may be what is sent again
        unreached = rng.random() < 0.04 and not twins  # its first attempt never came here
        await self._begin_call(agent, retry=1 if unreached else 0)

    async def _end_agent(self, agent: Agent) -> None:
        agent.ended = True
        _, recorder = self._doors[agent.proxies[0]]
        if self._rng.random() < 0.3:
            for home in sorted(agent.homes - self._closed):
                if not any(home in other.homes for other in self._agents if other is not agent and not other.ended):
                    self._closed.add(home)
                    await recorder.close(PROJECT, home)
        if agent.naming == "session of several" and self._rng.random() < 0.7:
            another = self._new_agents()[0]
            another.naming, another.session, another.moving_head = agent.naming, agent.session, False
            another.tools = agent.tools
            self._agents.append(another)

    def _edit(self, agent: Agent) -> None:
        users = [at for at, m in enumerate(agent.history[:-1]) if m["role"] == "user"]
        if not users:
            return
        agent.edited = True
        if self._rng.random() < 0.5 and len(users) > 1:
            agent.history = agent.history[users[1] :]  # trimmed
        else:
            at = self._rng.choice(users)
            changed = agent.history[at] | {"content": f"edited {next(self._numbers)}"}
            agent.history = [*agent.history[:at], changed, *agent.history[at + 1 :]]

    def _say_more(self, agent: Agent) -> None:
        last = agent.history[-1]
        if last.get("tool_calls"):
            agent.history += [{"role": "tool", "tool_call_id": c["id"], "content": "found"} for c in last["tool_calls"]]
            return
        words = self._rng.choice(FOLLOW_UPS)
        if self._rng.random() < 0.1 and len(str(last["content"])) > 100:
            agent.history = [{"role": "user", "content": f"Summary of the work: {last['content']}"}]  # compacted
            agent.edited = True
            return
        agent.history.append({"role": "user", "content": words})

    # --- calls

    async def _begin_call(self, agent: Agent, retry: int = 0, door: int | None = None) -> None:
        door = self._rng.choice(agent.proxies) if door is None else door
        attributor, recorder = self._doors[door]
        head = "You help."
        if agent.moving_head:
            head = f"You help. It is {agent.turns}:{agent.number} o'clock."
        body = [{"role": "system", "content": head}, *(self._echoed(agent, m) for m in agent.history)]
        request, stated, hints = self._request(agent, body, retry)
        try:
            placed = await attributor.place(self._target, stated, request, hints)
        except Forbidden:
            assert agent.naming == "path"
            assert not agent.homes
            self.tally.refused += 1
            agent.ended = True
            return
        self._check(agent, body, placed.attribution, retry)
        agent.homes.add(placed.attribution.trajectory.id)
        turn = self._turn(stated, request, placed.attribution)
        recorder.begin(turn)
        self._pending.append(Pending(agent, recorder, turn, list(agent.history), body))

    def _request(self, agent: Agent, body: list[Message], retry: int) -> tuple[RecordedRequest, StatedAddress, Any]:
        headers: dict[bytes, bytes] = {}
        rest: dict[str, Any] = {"temperature": 1.0}
        access = KeyAccess(agent.key, everywhere=not agent.key)
        stated = StatedAddress(Address(access=access), None)
        match agent.naming:
            case "path":
                stated = StatedAddress(Address(trajectory=agent.session, access=access), AddressSource.PATH)
            case "session" | "session of several":
                headers[b"x-session-id"] = agent.session.encode()
            case "metadata":
                rest["metadata"] = {"thread_id": agent.session}
            case "key":
                rest["prompt_cache_key"] = agent.session
            case "shared key":
                rest["prompt_cache_key"] = "my application"
            case "trace":
                headers[b"traceparent"] = f"00-{agent.session.removeprefix('s'):0>32}-00f067aa0ba902b7-01".encode()
            case "shared trace":
                headers[b"traceparent"] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
            case "litellm trace a request":
                headers[b"x-litellm-trace-id"] = str(next(self._numbers)).encode()
        raw = json.dumps([body, rest, agent.tools]).encode()
        request = RecordedRequest(
            dialect="chat",
            endpoint="/v1/chat/completions",
            model="helpdesk",
            stream=False,
            messages=json.loads(json.dumps(body)),
            tools=agent.tools,
            response_format=None,
            rest=rest,
            body_hash=blake2b(raw, digest_size=16).digest(),
            sampling=SamplingParameters(),
            retry_count=retry,
        )
        return request, stated, read_hints(headers, "chat", rest)

    def _turn(
        self, stated: StatedAddress, request: RecordedRequest, attribution: Attribution, **changes: Any
    ) -> RecordedCall:
        fields: dict[str, Any] = {
            "call_id": new_id("call"),
            "project_id": PROJECT,
            "address": stated.address,
            "attribution": attribution,
            "request": request,
            "state": CallState.OPEN,
            "alias_id": self._target.alias.id,
            "version_id": None,
            "base_fingerprint": None,
            "prompt_token_ids": [1, 2, 3],
            "choices": [],
            "usage": None,
            "response_meta": None,
            "http_status": 200,
            "error": None,
            "started_at": time.time(),
            "first_token_at": None,
            "finished_at": None,
        }
        return RecordedCall(**{**fields, **changes})

    async def _end_call(self, pending: Pending) -> None:
        agent, rng = pending.agent, self._rng
        door = next(n for n, (_, recorder) in enumerate(self._doors) if recorder is pending.recorder)
        if rng.random() < 0.08 and agent.retries < 3:
            await self._commit(pending, CallState.ABORTED, None)
            agent.retries += 1
            await self._begin_call(agent, pending.turn.request.retry_count + 1, door)
            return
        message = self._answer(agent)
        home = await self._commit(pending, CallState.COMPLETE, message)
        self._sampled.setdefault(_spelled([*pending.body, message]), set()).add(home)
        self._asked.setdefault(_spelled(pending.body), set()).add(home)
        agent.answered.add(home)
        if rng.random() < 0.03 and agent.retries < 3:  # the answer was lost on its way
            agent.retries += 1
            agent.lost = True
            await self._begin_call(agent, pending.turn.request.retry_count + 1, door)
            return
        agent.retries = 0
        agent.turns += 1
        agent.history = [*pending.sent, message]
        agent.past.append(list(agent.history))
        self._say_more(agent)

    async def _commit(self, pending: Pending, state: CallState, message: Message | None) -> str:
        turn = pending.turn
        finish = "tool_calls" if message and message.get("tool_calls") else "stop"
        choices = [SampledChoice(0, message, [7, 8], [-0.5, -0.5], finish)] if message else []
        issued = [(c["id"], "tool_call", 0) for c in (message or {}).get("tool_calls", ())]
        fields = {name: getattr(turn, name) for name in RecordedCall.__dataclass_fields__}
        ended = RecordedCall(
            **{**fields, "state": state, "choices": choices, "issued_ids": issued, "finished_at": time.time()}
        )
        await pending.recorder.commit(ended)
        return turn.attribution.trajectory.id

    def _answer(self, agent: Agent) -> Message:
        rng = self._rng
        if agent.tools and rng.random() < 0.4:
            calls = [
                {
                    "id": f"chatcmpl-tool-{next(self._numbers):016x}",
                    "type": "function",
                    "function": {"name": "find", "arguments": '{"id": 4821, "all": true}'},
                }
                for _ in range(rng.randint(1, 2))
            ]
            return {"role": "assistant", "content": None, "tool_calls": calls}
        if rng.random() < 0.15:
            return {
                "role": "assistant",
                "content": f"So far, number {next(self._numbers)}: " + "it was looked for. " * 8,
            }
        if rng.random() < 0.5:
            return {"role": "assistant", "content": f"Answer {next(self._numbers)}"}
        return {"role": "assistant", "content": rng.choice(ANSWERS)}

    def _echoed(self, agent: Agent, message: Message) -> Message:
        """A sampled turn as this agent's SDK sends it back."""
        if message["role"] != "assistant":
            return message
        bare = {k: v for k, v in message.items() if k != "content" or v}
        match agent.echo:
            case 0:
                return {"content": None} | bare
            case 1:
                return {"content": ""} | bare
            case 2:
                return bare
            case 3:
                extra: Message = {"refusal": None, "annotations": [], "audio": None, "function_call": None}
                return bare | {"content": bare.get("content")} | extra | {"tool_calls": bare.get("tool_calls")}
            case 5:
                return bare | {"content": str(bare.get("content") or "").strip()}
            case 6:
                return bare | ({} if "tool_calls" in bare else {"content": f"{bare['content']}</code>\nNoted."})
            case 7 if "tool_calls" in bare:
                return {"role": "assistant", "content": f"Calling tools:\n{bare['tool_calls']}"}
            case 7:
                return bare
        calls = [
            call | {"function": call["function"] | {"arguments": '{"all":true,"id":4821}'}, "index": at}
            for at, call in enumerate(bare.get("tool_calls", ()))
        ]
        return bare | ({"tool_calls": calls} if calls else {"content": [{"type": "text", "text": bare["content"]}]})

    # --- who is right

    def _check(self, agent: Agent, body: list[Message], how: Attribution, retry: int) -> None:
        tally, home = self.tally, how.trajectory.id
        tally.calls += 1
        tally.ways[how.source, str(how.confidence)] += 1
        way = f"{how.source}/{how.confidence}"
        where = f"seed {self._seed}, call {tally.calls}, agent {agent.number} ({agent.naming}): {way}"
        if self._owners.setdefault(home, agent.key) != agent.key:
            tally.crossed.append(where)
        fresh = not self._known(home)
        # where others only broke off, nobody's work is mixed up
        others = any(home in a.answered for a in self._agents if a is not agent)
        right = home in agent.answered or not others
        # a history that was copied may be that of any run of its thief's key
        if not right and how.confidence in TRAINED and not agent.stole:
            tally.wrong.append(where)
        expected = self._expected(agent, body, retry)
        if expected is None:
            tally.undecidable += 1
            tally.split += fresh and bool(agent.homes)
        else:
            tally.decidable += 1
            found = home in agent.homes if expected == "same" else fresh
            if how.confidence not in TRAINED or not found:
                tally.missed.append(f"{where}, expected {expected}")

    def _known(self, home: str) -> bool:
        return any(home in agent.homes for agent in self._agents) or any(home in s for s in self._sampled.values())

    def _expected(self, agent: Agent, body: list[Message], retry: int) -> str | None:
        """What the evidence alone says: "same" (a run of this agent), "new", or None where nobody could tell."""
        if agent.stole:
            return None
        if agent.naming == "path":
            return "same" if agent.homes else "new"
        if retry:
            return None
        ends = [at for at, m in enumerate(body) if m["role"] == "assistant"]
        if not ends:
            return None if agent.homes else "new"
        if agent.naming in ("session", "metadata", "session of several") and not agent.edited:
            return "same" if agent.naming != "session of several" and not agent.lost else None
        if agent.edited and "trace" in agent.naming:
            return None
        tool_turns = [m for m in body if m.get("tool_calls")]
        if tool_turns:
            return "same"
        last = body[ends[-1]]["content"] or ""
        if agent.echo == WRITES and "Calling tools" in last:
            return "same"
        retold = agent.echo in (TRIMS, APPENDS)
        known = self._asked if retold else self._sampled
        holders = known.get(_spelled(body[: ends[-1] + (not retold)]), set())
        holders = {home for home in holders if self._owners[home] == agent.key}
        holders = holders - self._closed or holders
        if len(holders) == 1 and holders <= agent.homes:
            return "same"
        return None


def _spelled(messages: Sequence[Mapping[str, Any]]) -> str:
    """A conversation's meaning, whatever its echo style, and whatever white space is at the ends of its answers."""
    told = []
    for m in messages:
        content = m.get("content") or ""
        if isinstance(content, list):
            content = content[0]["text"]
        calls = [
            (c["id"], c["function"]["name"], sorted(json.loads(c["function"]["arguments"]).items()))
            for c in m.get("tool_calls") or ()
        ]
        said = content.strip() if m["role"] == "assistant" else content
        told.append([m["role"], said, calls, m.get("tool_call_id")])
    return json.dumps(told)
