"""Lists over /hone/v1: runs and groups, newest first, narrowed by the words that the pages and the terminal take too.

Owns: these routes, what /schema says of their words, and reading a query for whoever lists. Refuses: what the words
mean (`recorder.listing.words`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from litestar import Response, get
from litestar.openapi.spec import OpenAPIType, Operation, Parameter, Schema

from proxy.api.route_parts import AnyRequest, Injected, answers, as_json
from proxy.errors import BadRequest
from recorder.listing.groups import GroupLine, list_groups
from recorder.listing.trajectories import TrajectoryLine, list_trajectories
from recorder.listing.words import GROUP_WORDS, RUN_WORDS, Word, group_filter, run_filter
from recorder.search.snippets import Snippet, snippets
from recorder.store.project import Project

MOST: Final = 200  # lines of a page
USUAL: Final = 50


@dataclass(frozen=True, slots=True)
class Runs:
    """A page of runs. `next`: what the following page begins `before`; null: there is none.

    `looked_at`: the page is not full, because so many runs were looked at for it, and there are more. `snippets`: by
    run, the words around what was searched for.
    """

    trajectories: Sequence[TrajectoryLine]
    next: str | None
    looked_at: int | None
    snippets: Mapping[str, Snippet]


@dataclass(frozen=True, slots=True)
class Groups:
    """A page of groups. `next`: what the following page begins `before`; null: there is none.

    `looked_at`: the page is not full, because so many groups were looked at for it, and there are more.
    """

    groups: Sequence[GroupLine]
    next: str | None
    looked_at: int | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of a list: its words with their values, where its page begins, and how long it is."""

    said: Sequence[tuple[str, str]]
    before: str | None
    limit: int


def asked(request: AnyRequest) -> Asked:
    """What a request asks of a list. Raises BadRequest."""
    query = [(name, str(value)) for name, value in request.query_params.multi_items()]
    said = [(name, value) for name, value in query if name not in _PAGING]
    paging = {name: value.strip() for name, value in query if name in _PAGING and value.strip()}
    return Asked(said, paging.get("before"), _limit(paging.get("limit")))


def _limit(said: str | None) -> int:
    if said is None:
        return USUAL
    if not (said.isascii() and said.isdigit() and 1 <= int(said[:9]) <= MOST):
        raise BadRequest(f"limit is {said[:80]!r}: a page has 1 to {MOST} lines.", param="limit")
    return int(said)


_PAGING: Final[Mapping[str, Parameter]] = {
    one.name: one
    for one in (
        Parameter(
            "before",
            "query",
            Schema(type=OpenAPIType.STRING),
            "Those before this place: the `next` of the page before.",
        ),
        Parameter(
            "limit", "query", Schema(type=OpenAPIType.INTEGER, minimum=1, maximum=MOST, default=USUAL), "How many."
        ),
    )
}


def _parameter(word: Word) -> Parameter:
    one = Schema(type=OpenAPIType.STRING, enum=[*word.takes, ""] if word.takes else None)  # as an empty field of a form
    schema = Schema(type=OpenAPIType.ARRAY, items=one) if word.many else one
    return Parameter(word.name, "query", schema, word.about)


def _parameters(words: Mapping[str, Word]) -> list[Parameter]:
    return [*map(_parameter, words.values()), *_PAGING.values()]


@dataclass
class _OfRuns(Operation):
    """The words of runs are read from the query all at once, so the framework does not know them."""

    def __post_init__(self) -> None:
        self.parameters = list(_parameters(RUN_WORDS))


@dataclass
class _OfGroups(Operation):
    """As `_OfRuns`, with the words of groups."""

    def __post_init__(self) -> None:
        self.parameters = list(_parameters(GROUP_WORDS))


async def listed_runs(project: Project, query: Asked) -> Runs:
    """The page of runs that a query asks for. Raises FilterInvalid."""
    wanted = run_filter(query.said)
    page = await list_trajectories(project, wanted, before=query.before, limit=query.limit)
    shown = [line.id for line in page.lines] if wanted.said is not None else []
    around = await snippets(project, wanted.said or "", shown)
    return Runs(page.lines, page.next, page.looked_at, around)


async def listed_groups(project: Project, query: Asked) -> Groups:
    """The page of groups that a query asks for. Raises FilterInvalid."""
    page = await list_groups(project, group_filter(query.said), before=query.before, limit=query.limit)
    return Groups(page.lines, page.next, page.looked_at)


@get("/hone/v1/trajectories", responses=answers(200, Runs), operation_class=_OfRuns)
async def show_runs(hone: Injected, request: AnyRequest) -> Response[bytes]:
    """List runs, newest first: those that all given words are true of. Of `state` and `tag` several may be given.

    An empty value says nothing.
    """
    return as_json(await listed_runs(hone.project, asked(request)))


@get("/hone/v1/groups", responses=answers(200, Groups), operation_class=_OfGroups)
async def show_groups(hone: Injected, request: AnyRequest) -> Response[bytes]:
    """List groups, newest first: those that all given words are true of. Of `state` several may be given."""
    return as_json(await listed_groups(hone.project, asked(request)))
