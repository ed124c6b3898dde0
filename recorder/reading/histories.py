"""What a run's conversation does not tell any more: turns that its agent cut or summarised away, and its sub-agents'.

Owns: which turns these are, each told once, by when they end. Refuses: errands and what may be another run's (whoever
gives the branches leaves them out), and how a judge is shown them (`judge.llm.shown`). Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile

from recorder.content.turns import Message
from recorder.lineage import likeness
from recorder.reading.views import HistoryView
from recorder.states import TurnKind

Nodes = Mapping[bytes, tuple[bytes | None, Message]]  # node → its parent and its message


@dataclass(frozen=True, slots=True)
class Branch:
    """What one call was asked and answered, by the node where that ends."""

    end: bytes
    kind: TurnKind
    at: float


def other_histories(nodes: Nodes, main: bytes | None, branches: Iterable[Branch]) -> list[HistoryView]:
    """The histories of a run beside the conversation that ends at `main`.

    A history is left out where another goes on from it. It begins where it first says what none before it does: an
    agent that keeps a window of its last turns tells each turn once.
    """
    earliest: dict[bytes, Branch] = {}
    for branch in sorted(branches, key=lambda b: (b.at, b.end)):
        earliest.setdefault(branch.end, branch)
    gone_on = _above(nodes, earliest)
    told_by_main = list(_up(nodes, main))
    left = [b for b in earliest.values() if b.end not in gone_on and b.end not in told_by_main]
    if not left:
        return []
    following = _following(nodes, {*gone_on, *told_by_main})
    told = {likeness.form_without_ids(nodes[node][1]) for node in told_by_main}
    found = []
    for branch in left:
        if _sent_back_otherwise(nodes, branch.end, following):
            continue
        messages = [nodes[node][1] for node in _up(nodes, branch.end)][::-1]
        new = list(dropwhile(lambda message: likeness.form_without_ids(message) in told, messages))
        if new:
            told.update(map(likeness.form_without_ids, new))
            found.append(HistoryView(branch.kind, new))
    return found


def _up(nodes: Nodes, node: bytes | None) -> Iterator[bytes]:
    while node is not None:
        yield node
        node = nodes[node][0]


def _above(nodes: Nodes, ends: Iterable[bytes]) -> set[bytes]:
    """All nodes that some end lies below."""
    found: set[bytes] = set()
    for end in ends:
        for node in _up(nodes, nodes[end][0]):
            if node in found:
                break
            found.add(node)
    return found


def _following(nodes: Nodes, these: Iterable[bytes]) -> Mapping[bytes | None, Sequence[Message]]:
    """The messages of some nodes by the node that they follow."""
    found: dict[bytes | None, list[Message]] = defaultdict(list)
    for node in these:
        parent, message = nodes[node]
        found[parent].append(message)
    return found


def _sent_back_otherwise(nodes: Nodes, end: bytes, following: Mapping[bytes | None, Sequence[Message]]) -> bool:
    """Whether an answer came back with other white space, other ids or a note behind it: it is told there."""
    parent, said = nodes[end]
    return any(
        likeness.form_without_ids(said) == likeness.form_without_ids(told)
        or likeness.same_but_space(said, told)
        or likeness.grown(said, told)
        for told in following.get(parent, ())
        if said.get("role") == told.get("role") == "assistant"
    )
