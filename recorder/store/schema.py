"""The schema of the store, declared once.

Owns: every table, its keys and indexes, for both SQLite and PostgreSQL; a test compares Alembic's migrations with it.
Refuses: queries. Times are unix seconds (UTC, float) by the database's clock; `*_bytes` and `*_s` name their unit.

Token ids are packed little-endian int32, logprobs little-endian float32 (`recorder.messages.tokens`). Node and blob ids
are keyed content hashes (16 bytes), so that writing one needs no query; other ids are text from `recorder.ids.new_id`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import TSVECTOR

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

PLACE: Final = "place"  # in an index's `info`: its number among the indexes of its table


@event.listens_for(Index, "after_parent_attach")
def _place(index: Index, table: Table) -> None:
    """Note the order of declaration, which SQLAlchemy does not keep.

    If two indexes match a query, SQLite chooses by their order, so they are declared in the order of the migrations.
    """
    index.info[PLACE] = len(table.indexes)


def _id() -> Column[str]:
    return Column("id", Text, primary_key=True)


def _project() -> Column[str]:
    return Column("project_id", Text, ForeignKey("projects.id"), nullable=False)


def _lease() -> list[Column[Any]]:
    """The columns of a claim: holder, epoch and expiry. Every write of the holder checks owner and epoch."""
    return [
        Column("lease_owner", Text),
        Column("lease_epoch", Integer, nullable=False, default=0, server_default="0"),
        Column("lease_expires_at", Double),
    ]


def _some(name: str | None, which: str, *columns: str) -> Index:
    """A partial index, of the rows that are queried frequently."""
    return Index(name, *columns, sqlite_where=text(which), postgresql_where=text(which))


def _where_set(column: str) -> Index:
    """A partial index of the rows with a value."""
    return _some(None, f"{column} IS NOT NULL", column)


projects = Table(
    "projects",
    metadata,
    _id(),  # the project's name
    # The key of content hashes, so that equal text in two projects cannot be linked.
    Column("node_key", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
    # Counts every deletion (`recorder.maintenance.deletion`): a process's cache is valid while it does not change.
    Column("deletions", Integer, nullable=False, default=0, server_default="0"),
)

keys = Table(
    "keys",
    metadata,
    _id(),
    _project(),
    Column("name", Text, nullable=False),
    Column("hash", Text, nullable=False, unique=True),  # sha256 of the key, which is shown only once
    Column("hint", Text, nullable=False),  # the key's first characters, to recognize it
    Column("scopes", JSON, nullable=False),  # any of infer, feedback, read, eval, admin
    Column("trajectory_id", Text),  # a key created for one trajectory
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    # The id of the first key of the family, whose keys share trajectories.
    Column("family", Text, nullable=False, default="", server_default=""),
    Column("replaces", Text),  # the key that it was rotated from
    Column("made_by", Text),  # a key's id, or the actor while no key is required
    Column("revoked_by", Text),
)

sign_ins = Table(
    "sign_ins",
    metadata,
    Column("hash", Text, primary_key=True),  # sha256 of the browser's token
    _project(),
    # the token has this key's scopes while the key is valid
    Column("key_id", Text, ForeignKey("keys.id"), nullable=False),
    Column("expires_at", Double, nullable=False),
)

aliases = Table(
    "aliases",
    metadata,
    _id(),
    _project(),
    Column("name", Text, nullable=False),
    Column("base_model", Text, nullable=False),  # the engine's name of the base
    Column("base_fingerprint", Text),  # weights, dtype, tokenizer, chat template
    Column("live_version_id", Text),
    Column("previous_version_id", Text),  # the target of `hone rollback`
    Column("canary_version_id", Text),
    Column("canary_share", Double, nullable=False, default=0.0, server_default="0"),
    Column("recipe", JSON, nullable=False),
    Column("generation", Integer, nullable=False, default=0, server_default="0"),  # counts every move
    Column("updated_at", Double, nullable=False),
    # group, or running (`queue.training.baselines`)
    Column("baseline", Text, nullable=False, default="group", server_default="group"),
    Column("holdback_share", Double, nullable=False, default=0.0, server_default="0"),  # after the next promotions
    Column("rollback_watch_s", Double, nullable=False, default=0.0, server_default="0"),
    Column("watched_until", Double),  # until then the live version is compared with the previous one
    UniqueConstraint("project_id", "name"),
)

leases = Table(
    "leases",
    metadata,
    _project(),
    Column("name", Text, nullable=False),  # "controller", "trainer:<alias>"
    *_lease(),
    PrimaryKeyConstraint("project_id", "name"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("id", LargeBinary, primary_key=True),  # keyed hash of parent id and canonical message
    _project(),
    Column("parent_id", LargeBinary),
    Column("depth", Integer, nullable=False),
    Column("role", Text, nullable=False),
    Column("message", JSON, nullable=False),  # as first seen, in the chat form
    Column("redacted", Boolean, nullable=False, default=False, server_default="0"),
    Index(None, "parent_id"),
)

blobs = Table(
    "blobs",
    metadata,
    Column("id", LargeBinary, primary_key=True),  # keyed hash of the content
    _project(),
    Column("kind", Text, nullable=False),  # tools, response_format, request, media
    Column("content", LargeBinary, nullable=False),  # JSON text, or the media's bytes
)

node_blobs = Table(
    "node_blobs",
    metadata,
    Column("node_id", LargeBinary, nullable=False),
    Column("blob_id", LargeBinary, nullable=False),  # media in the node's message
    PrimaryKeyConstraint("node_id", "blob_id"),
    Index(None, "blob_id"),
)

groups = Table(
    "groups",
    metadata,
    _id(),
    _project(),
    Column("alias_id", Text, ForeignKey("aliases.id")),
    Column("external_id", Text),
    Column("implicit_key", Text),  # hash of (project, alias, system, tools, first user message)
    # increases with each successor of a closed group
    Column("sequence", Integer, nullable=False, default=0, server_default="0"),
    Column("declared_size", Integer),
    Column("state", Text, nullable=False),
    # Of excluded (left_out) and unscored groups, and of measured ones without a score: a ledger code.
    Column("reason", Text),
    Column("version_id", Text),  # the version this group is pinned to
    Column("current_score_id", Text),
    Column("campaign_id", Text),
    Column("scenario_id", Text),
    Column("opened_at", Double, nullable=False),
    Column("joined_at", Double, nullable=False),  # when the last member joined
    Column("last_call_at", Double, nullable=False),
    Column("ready_at", Double),
    Column("tries", Integer, nullable=False, default=0, server_default="0"),
    Column("try_after", Double),  # when it is judged again: unscored, or scored with later feedback
    *_lease(),
    Column("made_by", Text, nullable=False, default="", server_default=""),  # key family; "": the project
    UniqueConstraint("project_id", "external_id", "sequence"),
    Index(None, "project_id", "state", "try_after"),
    Index("ix_groups_newest", "project_id", "opened_at", "id"),  # lists
    Index("ix_groups_newest_of_state", "project_id", "state", "opened_at", "id"),
    _some("ix_groups_scored", "current_score_id IS NOT NULL", "project_id", "id"),  # rewards of the newest
    _some("ix_groups_newest_of_reason", "reason IS NOT NULL", "project_id", "reason", "opened_at", "id"),  # lists
    _some("ix_groups_ready", "state = 'ready'", "project_id", "ready_at", "id"),  # the next to be judged
    # the newest group of each state under a key
    _some("ix_groups_implicit", "implicit_key IS NOT NULL", "project_id", "implicit_key", "state", "sequence"),
)

trajectories = Table(
    "trajectories",
    metadata,
    _id(),
    _project(),
    Column("group_id", Text, ForeignKey("groups.id")),
    Column("alias_id", Text, ForeignKey("aliases.id")),
    # The group part of the external address.
    Column("address_group", Text, nullable=False, default="", server_default=""),
    Column("external_id", Text),  # null: the agent named none
    Column("sequence", Integer, nullable=False, default=0, server_default="0"),  # increases with each continuation
    Column("state", Text, nullable=False),
    Column("end_reason", Text),
    Column("purpose", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("continues", Text),  # the sealed trajectory that this one continues
    Column("forked_from_call", Text),
    Column("leaf_call_id", Text),  # the last main leaf; the judge reads the path to it
    Column("leaf_choice", Integer),
    Column("selection", Text),  # not_selected: a sibling choice of n>1 that the agent did not continue
    Column("version_id", Text),  # the pinned version
    Column("mixed", Boolean, nullable=False, default=False, server_default="0"),  # moved to another version midway
    Column("call_count", Integer, nullable=False, default=0, server_default="0"),
    Column("tags", JSON, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("last_call_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("session", Text),  # a client's name for the conversation; several trajectories may share it
    Column("made_by", Text, nullable=False, default="", server_default=""),  # key family; "": any key may use it
    # Since when it is in its alias's drift set (`queue.training.drift_set`): it is never trained on.
    Column("drift_set_at", Double),
    Column("engine_url", Text),  # the engine that answered last; its next calls go there (`proxy.versions.affinity`)
    UniqueConstraint("project_id", "address_group", "external_id", "sequence"),
    Index(None, "group_id"),
    Index("ix_trajectories_newest", "project_id", "id"),  # lists
    Index(None, "project_id", "state", "id"),  # open trajectories; lists of one state
    _some("ix_trajectories_ended", "ended_at IS NOT NULL", "project_id", "ended_at"),  # retention
    _some("ix_trajectories_shadow", "origin = 'shadow'", "project_id", "id"),  # the cost of shadow answers
    # For lists, read in descending order of the id.
    Index("ix_trajectories_newest_of_alias", "project_id", "alias_id", "id"),
    _some("ix_trajectories_newest_of_version", "version_id IS NOT NULL", "version_id", "id"),
    _some("ix_trajectories_newest_of_session", "session IS NOT NULL", "project_id", "session", "id"),
    _some("ix_trajectories_drift_set", "drift_set_at IS NOT NULL", "alias_id", "id"),
)

calls = Table(
    "calls",
    metadata,
    _id(),
    _project(),
    Column("trajectory_id", Text, ForeignKey("trajectories.id"), nullable=False),
    Column("parent_call_id", Text),
    Column("parent_choice", Integer),
    Column("alias_id", Text),
    Column("version_id", Text),
    Column("base_fingerprint", Text),
    Column("model", Text, nullable=False),  # as the client requested
    Column("dialect", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("stream", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("superseded_by", Text),
    Column("turn_kind", Text, nullable=False),
    Column("attribution_source", Text, nullable=False),
    Column("attribution_confidence", Text, nullable=False),
    Column("prompt_node_id", LargeBinary),
    Column("tools_blob_id", LargeBinary),
    Column("format_blob_id", LargeBinary),  # response_format
    Column("request_blob_id", LargeBinary),  # the body without messages, tools and response_format
    Column("body_hash", LargeBinary),  # recognizes an SDK's retry
    Column("retry_count", Integer, nullable=False, default=0, server_default="0"),
    Column("sampling", JSON, nullable=False),  # effective parameters
    Column("usage", JSON),
    Column("response_meta", JSON),  # fields of the answer besides message and tokens
    Column("prompt_len", Integer),  # null: the token ids are unknown
    Column("prompt_shared", Integer),  # leading ids that equal the parent's prompt + sampled ids (whole blocks)
    Column("prompt_delta", LargeBinary),  # int32: the ids from prompt_shared on
    Column("prompt_hashes", LargeBinary),  # chained hash per whole block, from prompt_shared on
    Column("http_status", Integer),
    Column("error", Text),
    Column("started_at", Double, nullable=False),
    Column("first_token_at", Double),
    Column("finished_at", Double),
    Column("process", Text),  # the process of an open call; its lease shows whether it is alive
    Index(None, "parent_call_id"),
    # To check whether a node or blob is still used.
    Index(None, "prompt_node_id"),
    _where_set("tools_blob_id"),
    _where_set("format_blob_id"),
    _where_set("request_blob_id"),
    _some("ix_calls_open", "state = 'open'", "project_id"),  # few rows of millions, queried often
    Index(None, "trajectory_id", "attribution_source"),  # lists show how a trajectory's calls were attributed
)

choices = Table(
    "choices",
    metadata,
    Column("call_id", Text, ForeignKey("calls.id"), nullable=False),
    Column("index", Integer, nullable=False),
    Column("node_id", LargeBinary),  # the assistant message, under the call's prompt node
    Column("token_ids", LargeBinary),
    Column("logprobs", LargeBinary),
    Column("hashes", LargeBinary),  # chained hashes of the whole blocks that end inside the sampled ids
    Column("finish_reason", Text),
    Column("trainable", Boolean, nullable=False),
    Column("untrainable_reason", Text),
    # keyed hash of the question and the answer (`messages.exchanges`); null in calls whose trajectory was stated
    Column("exchange_id", LargeBinary),
    PrimaryKeyConstraint("call_id", "index"),
    Index(None, "node_id", "call_id"),
    _where_set("exchange_id"),
)

issued = Table(
    "issued",
    metadata,
    _project(),
    Column("issued_id", Text, nullable=False),  # of a tool call or response (`messages.content_hashes.issued_id_key`)
    Column("kind", Text, nullable=False),
    Column("call_id", Text, nullable=False),
    Column("choice", Integer, nullable=False),
    Column("trajectory_id", Text, nullable=False),
    PrimaryKeyConstraint("project_id", "issued_id"),
    Index(None, "call_id"),
)

# Recorded tool requests of models: by these rows a tool call through the gateway finds the call that requested it.
tool_requests = Table(
    "tool_requests",
    metadata,
    _project(),
    Column("call_id", Text, nullable=False),
    Column("choice", Integer, nullable=False),
    Column("position", Integer, nullable=False),  # among the tool calls of its message
    Column("tool_call_id", Text),
    Column("trajectory_id", Text, nullable=False),
    Column("match", LargeBinary, nullable=False),  # keyed hash of name and arguments
    PrimaryKeyConstraint("call_id", "choice", "position"),
    Index(None, "match", "call_id"),
    Index(None, "trajectory_id"),
)

tool_calls = Table(
    "tool_calls",
    metadata,
    _id(),
    _project(),
    Column("trajectory_id", Text, ForeignKey("trajectories.id")),  # null: unknown
    Column("call_id", Text),  # the model call that requested it
    Column("choice", Integer),
    Column("position", Integer),
    Column("tool_call_id", Text),
    # path, key, header, traceparent, trace, session_header, arguments, tool_call_id, result, order, none
    Column("join_source", Text, nullable=False),
    Column("join_confidence", Text, nullable=False),
    Column("server", Text),  # null: no configured MCP server has a tool of this name
    Column("name", Text, nullable=False),  # the name that the agent used
    Column("tool", Text, nullable=False),  # the name on its server
    Column("arguments", JSON),
    Column("outcome", Text, nullable=False),
    Column("result", JSON),  # the server's complete answer
    Column("error", Text),
    Column("annotations", JSON),  # readOnlyHint, destructiveHint … as the server declared them
    Column("started_at", Double, nullable=False),
    Column("finished_at", Double, nullable=False),
    # Set while several requests may be the one that it answers: the hash of name and arguments that they share with it,
    # and the evidence by which the model call that brings its result back finds it (`ToolCallEvidence`).
    Column("request_match", LargeBinary),
    Column("evidence", JSON),
    Index(None, "trajectory_id"),
    Index(None, "call_id"),
    Index(None, "project_id", "started_at"),
    _some("ix_tool_calls_failed", "outcome IN ('failed', 'errored')", "project_id", "trajectory_id"),  # lists
    _some("ix_tool_calls_waiting", "request_match IS NOT NULL", "request_match", "id"),
)

scores = Table(
    "scores",
    metadata,
    _id(),
    _project(),
    Column("group_id", Text, ForeignKey("groups.id"), nullable=False),
    Column("recipe_hash", Text, nullable=False),
    Column("judge_model", Text),
    Column("judge_version", Text),
    Column("prompt_hash", Text),  # an equal prompt hash is a cache hit
    Column("order_seed", Integer),
    Column("reply", Text),
    Column("tokens_in", Integer, nullable=False, default=0, server_default="0"),
    Column("tokens_out", Integer, nullable=False, default=0, server_default="0"),
    Column("cost_usd", Double),
    Column("latency_s", Double),
    Column("created_at", Double, nullable=False),
    Column("alias_id", Text),  # the group's
    # Whether its rewards can be compared with other groups: no judge's ranking changed them, and no part is missing.
    Column("absolute", Boolean, nullable=False, default=False, server_default="0"),
    Column("tokens_cached", Integer, nullable=False, default=0, server_default="0"),  # of tokens_in
    Column("agreement", Double),  # of several replies: mean tau-b of each two; null: fewer than two, or no order
    # Of the recipe without people and code, as `hone calibrate` measures it; null: no model's verdict is in a reward.
    Column("judge_hash", Text),
    # Whether a reward of kind follow_up has a part in the rewards: what users wrote next.
    Column("follow_up", Boolean, nullable=False, default=False, server_default="0"),
    Index(None, "group_id"),
    Index(None, "project_id", "prompt_hash"),
    Index(None, "alias_id", "recipe_hash", "created_at"),
)

# How well judges agree with people (`hone calibrate`): the newest measurement of each.
calibrations = Table(
    "calibrations",
    metadata,
    _project(),
    Column("judge_hash", Text, nullable=False),  # as scores have it
    Column("judge", Text, nullable=False),  # its name then
    Column("agreement", Double, nullable=False),  # the share of pairs that it orders as people do
    Column("pairs", Integer, nullable=False),
    Column("at", Double, nullable=False),
    PrimaryKeyConstraint("project_id", "judge_hash"),
)

score_parts = Table(
    "score_parts",
    metadata,
    Column("score_id", Text, ForeignKey("scores.id"), nullable=False),
    Column("trajectory_id", Text, ForeignKey("trajectories.id"), nullable=False),
    Column("part", Text, nullable=False),  # "reward" is the combination; the others are its parts
    Column("value", Double),  # null: the part is missing; see `explanation`
    Column("weight", Double),
    Column("explanation", Text),
    Column("unasked", Boolean, nullable=False, default=False, server_default="0"),  # the value is not a verdict
    PrimaryKeyConstraint("score_id", "trajectory_id", "part"),
    Index(None, "trajectory_id"),
)

# The prompts of scores: messages as compressed JSON.
prompts = Table(
    "prompts",
    metadata,
    Column("score_id", Text, ForeignKey("scores.id"), primary_key=True),
    Column("packed", LargeBinary, nullable=False),
)

# The reply to each request if several made a score; a single reply is in `scores`.
judge_replies = Table(
    "judge_replies",
    metadata,
    Column("score_id", Text, ForeignKey("scores.id"), nullable=False),
    Column("number", Integer, nullable=False),  # the index of the request; several judges alternate
    Column("judge_model", Text, nullable=False),
    Column("judge_version", Text),
    Column("weight", Double, nullable=False),
    Column("reply", Text),
    Column("failed", Text),  # why there is no reply
    Column("verdicts", Text),  # JSON: the verdict on each trajectory
    Column("tokens_in", Integer, nullable=False, default=0, server_default="0"),
    Column("tokens_cached", Integer, nullable=False, default=0, server_default="0"),
    Column("tokens_out", Integer, nullable=False, default=0, server_default="0"),
    Column("cost_usd", Double),
    Column("latency_s", Double),
    PrimaryKeyConstraint("score_id", "number"),
)

# Cross-checks: a second judge's verdict on a scored group, compared with the score; it is not a score.
second_scores = Table(
    "second_scores",
    metadata,
    _id(),
    _project(),
    Column("group_id", Text, ForeignKey("groups.id"), nullable=False),
    Column("alias", Text, nullable=False),  # its name; "": none
    Column("recipe", Text, nullable=False),
    Column("pair", Text, nullable=False),  # a hash of both judges' settings
    Column("judge", Text, nullable=False),  # the judge: cheap or strong
    Column("judge_model", Text, nullable=False),
    Column("cheap_version", Text),  # as the providers of both judges reported
    Column("strong_version", Text),
    Column("failed", Text),  # why there is no verdict
    Column("parts", Text),  # JSON: the values of each trajectory
    Column("tau", Double),  # Kendall's tau-b of the two; null: the group has no order
    # Over the newest such groups, including this one:
    Column("groups", Integer, nullable=False, default=0, server_default="0"),
    Column("mean", Double),  # of tau in these groups
    Column("low", Double),  # the mean's interval
    Column("high", Double),
    Column("tokens_in", Integer, nullable=False, default=0, server_default="0"),
    Column("tokens_cached", Integer, nullable=False, default=0, server_default="0"),
    Column("tokens_out", Integer, nullable=False, default=0, server_default="0"),
    Column("cost_usd", Double),
    Column("latency_s", Double),
    Column("created_at", Double, nullable=False),
    Index(None, "group_id"),
    Index(None, "project_id", "alias", "recipe", "id"),
)

# Switches between two judges: which one scores since when. Before the first switch the cheap judge scores.
judge_turns = Table(
    "judge_turns",
    metadata,
    _id(),
    _project(),
    Column("alias", Text, nullable=False),
    Column("recipe", Text, nullable=False),
    Column("number", Integer, nullable=False),  # from 1 on
    Column("pair", Text, nullable=False),
    Column("judge", Text, nullable=False),  # cheap, or strong
    Column("judge_model", Text, nullable=False),
    Column("reason", Text, nullable=False),  # a code
    Column("bound", Double),  # judge.strong.min_agreement
    Column("groups", Integer, nullable=False, default=0, server_default="0"),
    Column("mean", Double),
    Column("low", Double),
    Column("high", Double),
    Column("at", Double, nullable=False),
    UniqueConstraint("project_id", "alias", "recipe", "number"),
)

# Cached verdicts on single trajectories, by a hash of the request.
verdicts = Table(
    "verdicts",
    metadata,
    _project(),
    Column("hash", Text, nullable=False),
    Column("trajectory_id", Text, ForeignKey("trajectories.id"), nullable=False),  # the first that it was requested for
    Column("verdicts", Text, nullable=False),  # JSON
    Column("judge_version", Text),
    Column("created_at", Double, nullable=False),
    PrimaryKeyConstraint("project_id", "hash"),
    Index(None, "trajectory_id"),
)

# The full-text index (`recorder.search`): a row for the text that one call adds to its trajectory.
said = Table(
    "said",
    metadata,
    # The millisecond in which its trajectory began, then a number: the newest trajectories are found first.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    _project(),
    Column("trajectory_id", Text, nullable=False),
    Column("call_id", Text, nullable=False, unique=True),
    Column("words", Text().with_variant(TSVECTOR, "postgresql"), nullable=False),
)

# Calls that are written but not yet in `said`.
unindexed = Table(
    "unindexed",
    metadata,
    _project(),
    Column("call_id", Text, nullable=False),
    PrimaryKeyConstraint("project_id", "call_id"),
    sqlite_with_rowid=False,
)

# One row for each deleted row of `said` whose words may still be in SQLite's index (`recorder.search.indexer`).
unmerged = Table("unmerged", metadata, Column("mark", BigInteger, primary_key=True, autoincrement=False))

# Ended calls and when their totals were counted (`recorder.totals.follower`): each call is counted once.
counted_calls = Table(
    "counted_calls",
    metadata,
    Column("call_id", Text, primary_key=True),
    _project(),
    Column("counted_at", Double),  # null: it waits
    _some("ix_counted_calls_waiting", "counted_at IS NULL", "project_id", "call_id"),
    sqlite_with_rowid=False,
)

# Totals of calls by the time at which they began (`recorder.totals.time_rows`). They outlive the calls.
traffic = Table(
    "traffic",
    metadata,
    _project(),
    Column("step_s", Integer, nullable=False),  # the length of the time that a row covers, in seconds
    Column("dimension", Text, nullable=False),  # "", alias, version, client, key, tag, error
    Column("at", BigInteger, nullable=False),  # the beginning of that time: a multiple of step_s
    Column("value", Text, nullable=False),  # of the dimension; "": none
    Column("origin", Text, nullable=False),  # of the calls' trajectories
    Column("calls", Integer, nullable=False),
    Column("errors", Integer, nullable=False),
    Column("tokens_in", BigInteger, nullable=False),
    Column("tokens_out", BigInteger, nullable=False),
    Column("cost_usd", Double),  # of other providers; null: no call has a price
    Column("durations", LargeBinary, nullable=False),  # packed histograms (`recorder.totals.histograms`)
    Column("first_tokens", LargeBinary, nullable=False),
    PrimaryKeyConstraint("project_id", "step_s", "dimension", "at", "value", "origin"),
    sqlite_with_rowid=False,
)

# Totals of a trajectory's calls (`recorder.totals.trajectory_rows`).
trajectory_totals = Table(
    "trajectory_totals",
    metadata,
    Column("trajectory_id", Text, ForeignKey("trajectories.id"), primary_key=True),
    Column("calls", Integer, nullable=False),
    Column("errors", Integer, nullable=False),
    Column("tokens_in", BigInteger, nullable=False),
    Column("tokens_out", BigInteger, nullable=False),
    Column("cost_usd", Double),
    Column("duration_s", Double, nullable=False),  # of its complete calls together
    Column("first_token_s", Double, nullable=False),  # until the first tokens of its complete calls, together
    Column("first_tokens", Integer, nullable=False),  # the calls that this is the sum of
    sqlite_with_rowid=False,
)

# What a trajectory is found by in lists, if one of its calls has it.
trajectory_facets = Table(
    "trajectory_facets",
    metadata,
    _project(),
    Column("facet", Text, nullable=False),  # client, tool, finish_reason, error
    Column("value", Text, nullable=False),
    Column("trajectory_id", Text, ForeignKey("trajectories.id"), nullable=False),
    PrimaryKeyConstraint("project_id", "facet", "value", "trajectory_id"),
    Index(None, "trajectory_id"),
    sqlite_with_rowid=False,
)

# Named lists of trajectories, and filters that people keep (`recorder.curation`).
datasets = Table(
    "datasets",
    metadata,
    _id(),
    _project(),
    Column("name", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("made_by", Text, nullable=False),  # a key's id, or the actor while no key is required
    Column("deleted", Integer, nullable=False, default=0, server_default="0"),  # of its trajectories, since
    UniqueConstraint("project_id", "name"),
)

dataset_trajectories = Table(
    "dataset_trajectories",
    metadata,
    Column("dataset_id", Text, ForeignKey("datasets.id"), nullable=False),
    Column("trajectory_id", Text, ForeignKey("trajectories.id"), nullable=False),
    Column("added_at", Double, nullable=False),
    PrimaryKeyConstraint("dataset_id", "trajectory_id"),
    Index(None, "trajectory_id"),
    sqlite_with_rowid=False,
)

saved_filters = Table(
    "saved_filters",
    metadata,
    _id(),
    _project(),
    Column("list", Text, nullable=False),  # trajectories or groups
    Column("name", Text, nullable=False),
    Column("query", Text, nullable=False),  # as in the list's address
    Column("created_at", Double, nullable=False),
    Column("made_by", Text, nullable=False),
    UniqueConstraint("project_id", "list", "name"),
)

# Trajectories that people put into the review queue.
review_requests = Table(
    "review_requests",
    metadata,
    Column("trajectory_id", Text, ForeignKey("trajectories.id"), primary_key=True),
    _project(),
    Column("at", Double, nullable=False),
    Column("made_by", Text, nullable=False),
    Index(None, "project_id", "at"),
)

# Statements that SQLAlchemy cannot express, run after the tables exist: the index over `said`.
BESIDE: Final[Mapping[str, Sequence[str]]] = {
    "sqlite": (
        "CREATE VIRTUAL TABLE said_words USING fts5("
        "words, content='said', content_rowid='id', columnsize=0, tokenize='ascii')",
        "CREATE TRIGGER said_made AFTER INSERT ON said BEGIN"
        " INSERT INTO said_words (rowid, words) VALUES (new.id, new.words); END",
        "CREATE TRIGGER said_gone AFTER DELETE ON said BEGIN"
        " INSERT INTO said_words (said_words, rowid, words) VALUES ('delete', old.id, old.words);"
        " INSERT INTO unmerged VALUES (random()); END",
    ),
    "postgresql": ("CREATE INDEX ix_said_words ON said USING gin (words)",),
}

feedback = Table(
    "feedback",
    metadata,
    _id(),
    _project(),
    Column("trajectory_id", Text, ForeignKey("trajectories.id"), nullable=False),
    Column("call_id", Text),
    Column("name", Text, nullable=False),
    Column("value", JSON, nullable=False),  # number, bool or text
    Column("comment", Text),
    Column("tags", JSON, nullable=False),
    Column("created_at", Double, nullable=False),
    Index(None, "trajectory_id"),
)

versions = Table(
    "versions",
    metadata,
    _id(),
    _project(),
    Column("alias_id", Text, ForeignKey("aliases.id"), nullable=False),
    Column("number", Integer, nullable=False),  # 0 is the base without an adapter
    Column("parent_id", Text),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("engine_name", Text, nullable=False),  # its model name in the engine
    Column("path", Text),  # null for version 0
    Column("manifest_sha256", Text),
    Column("base_fingerprint", Text),
    Column("verified", Text),  # logprobs, or identity if the difference is below the engine's noise
    Column("metrics", JSON, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("state_at", Double, nullable=False),
    UniqueConstraint("alias_id", "number"),
    Index(None, "project_id", "state"),
)

replicas = Table(
    "replicas",
    metadata,
    _id(),
    _project(),
    Column("url", Text, nullable=False),
    Column("base_model", Text),
    Column("base_fingerprint", Text),
    Column("state", Text, nullable=False),  # up, down, starting, asleep
    Column("detail", Text),
    Column("loaded", JSON, nullable=False),  # engine names of its loaded adapters
    Column("seen_at", Double, nullable=False),
    UniqueConstraint("project_id", "url"),
)

proxies = Table(
    "proxies",
    metadata,
    _id(),
    _project(),
    Column("url", Text, nullable=False),
    Column("generations", JSON, nullable=False),  # alias id → generation it has seen
    Column("in_flight", JSON, nullable=False),  # version id → requests
    Column("seen_at", Double, nullable=False),
)

campaigns = Table(
    "campaigns",
    metadata,
    _id(),
    _project(),
    Column("alias_id", Text, ForeignKey("aliases.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("steps_done", Integer, nullable=False, default=0, server_default="0"),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    # The version whose gate requested the attempts (`queue.gate_requests`); null: a campaign or an evaluation
    # (`queue.campaigns`), which has none. The name then says beside which version.
    Column("version_id", Text),
    Index(None, "version_id", "name", unique=True),
)

scenarios = Table(
    "scenarios",
    metadata,
    _id(),
    _project(),
    Column("campaign_id", Text, ForeignKey("campaigns.id"), nullable=False),
    Column("external_id", Text, nullable=False),
    Column("split", Text, nullable=False),  # train, val, test
    Column("input", JSON, nullable=False),
    Column("reference", JSON),
    Column("rubric", JSON),
    Column("adversarial", Boolean, nullable=False, default=False, server_default="0"),  # it tempts the agent to cheat
    UniqueConstraint("campaign_id", "split", "external_id"),
)

attempts = Table(
    "attempts",
    metadata,
    _id(),
    _project(),
    Column("campaign_id", Text, ForeignKey("campaigns.id"), nullable=False),
    Column("scenario_id", Text, ForeignKey("scenarios.id"), nullable=False),
    Column("step_number", Integer, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("number", Integer, nullable=False),  # the number of the attempt in its group
    Column("try", Integer, nullable=False, default=0, server_default="0"),
    Column("state", Text, nullable=False),
    Column("group_external_id", Text, nullable=False),
    Column("trajectory_external_id", Text, nullable=False),
    Column("answer", JSON),
    Column("error", Text),
    Column("started_at", Double),
    Column("ended_at", Double),
    *_lease(),
    Column("success", Double),  # of a gate's or a validation's attempt: 1 or 0; null: not measured
    Column("entered_step", Integer),  # the training step that took its group, if it may differ from `step_number`
    UniqueConstraint("campaign_id", "step_number", "purpose", "scenario_id", "number", "try"),
    Index(None, "campaign_id", "state"),
)

# The scenarios of a campaign's steps where their draw is more than their turn, written before their attempts start.
draws = Table(
    "draws",
    metadata,
    Column("campaign_id", Text, ForeignKey("campaigns.id"), nullable=False),
    Column("step_number", Integer, nullable=False),
    Column("place", Integer, nullable=False),  # in the step
    Column("scenario_id", Text, ForeignKey("scenarios.id"), nullable=False),
    Column("refill", Integer, nullable=False),  # 0: it began the step; else the number of the refill
    Column("reason", Text, nullable=False),  # uniform, chosen, explored, refill
    Column("reward", Double, nullable=False),  # the estimates at the draw: the mean reward, …
    Column("differ", Double, nullable=False),  # … and the chance that its attempts' rewards differ
    Column("seed", Text, nullable=False),
    PrimaryKeyConstraint("campaign_id", "step_number", "place"),
)

steps = Table(
    "steps",
    metadata,
    _id(),
    _project(),
    Column("alias_id", Text, ForeignKey("aliases.id"), nullable=False),
    Column("campaign_id", Text),
    Column("number", Integer, nullable=False),  # counts the alias's steps
    Column("parent_version_id", Text, nullable=False),
    Column("version_id", Text),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("metrics", JSON, nullable=False),
    Column("checkpoint_path", Text),  # optimizer, RNG state
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    UniqueConstraint("alias_id", "number"),
    Index(None, "version_id"),
)

step_groups = Table(
    "step_groups",
    metadata,
    Column("step_id", Text, ForeignKey("steps.id"), nullable=False),
    Column("group_id", Text, ForeignKey("groups.id"), nullable=False),
    Column("score_id", Text, nullable=False),  # the score this step used
    PrimaryKeyConstraint("step_id", "group_id"),
    Index(None, "group_id"),
)

# The trajectories that the ledger marks as trained when the step's version goes live, and as untrained on a rollback.
step_trajectories = Table(
    "step_trajectories",
    metadata,
    Column("step_id", Text, ForeignKey("steps.id"), nullable=False),
    Column("trajectory_id", Text, nullable=False),  # no foreign key, because it may be deleted later
    PrimaryKeyConstraint("step_id", "trajectory_id"),
)

# The running baselines that a step compared rewards with, so that its advantages can be explained later.
step_baselines = Table(
    "step_baselines",
    metadata,
    Column("step_id", Text, ForeignKey("steps.id"), nullable=False),
    Column("trajectory_id", Text, nullable=False),  # no foreign key, because it may be deleted later
    Column("reward", Double, nullable=False),
    Column("mean", Double, nullable=False),
    Column("std", Double, nullable=False),
    Column("rewards", Integer, nullable=False),  # the number of earlier rewards
    Column("same_tools", Boolean, nullable=False),  # whether all are of trajectories with the same tools
    PrimaryKeyConstraint("step_id", "trajectory_id"),
)

# What each objective of a step was computed from, so that it uses a datum only so often. The trajectories of scored
# groups are in `step_trajectories`.
uses = Table(
    "uses",
    metadata,
    Column("step_id", Text, ForeignKey("steps.id"), nullable=False),
    Column("objective", Text, nullable=False),
    Column("kind", Text, nullable=False),  # trajectory, file, pair, turn
    # a trajectory (it may be deleted later), a row of a file, a pair of trajectories as CHOSEN>REJECTED, or an
    # answer as CALL:CHOICE
    Column("source_id", Text, nullable=False),
    Column("times", Integer, nullable=False),  # the step's passes over it
    PrimaryKeyConstraint("step_id", "objective", "source_id"),
    Index(None, "source_id", "objective"),
)

# What a version's answers to its alias's drift set are worth, by member. So versions are compared on the same tasks.
drift_scores = Table(
    "drift_scores",
    metadata,
    Column("version_id", Text, ForeignKey("versions.id"), nullable=False),
    Column("trajectory_id", Text, nullable=False),  # the member; it may be deleted later
    Column("kind", Text, nullable=False),  # reward, win: of its answer alone, or over the recorded answer
    Column("value", Double, nullable=False),
    PrimaryKeyConstraint("version_id", "trajectory_id"),
)

# What a trainer learned about a device's memory: the tokens of a pass that fitted.
pass_budgets = Table(
    "pass_budgets",
    metadata,
    _project(),
    Column("base_fingerprint", Text, nullable=False),
    Column("device", Text, nullable=False),  # its name and the size of its memory
    Column("token_budget", Integer, nullable=False),  # the setting it was found under
    Column("pass_budget", Integer, nullable=False),
    Column("at", Double, nullable=False),
    PrimaryKeyConstraint("project_id", "base_fingerprint", "device"),
)

# Adapters that engines load once and unload, before a trainer of these settings makes versions.
adapter_trials = Table(
    "adapter_trials",
    metadata,
    _id(),
    _project(),
    Column("alias_id", Text, ForeignKey("aliases.id"), nullable=False),
    Column("engine_name", Text),  # null: the trainer has not written the adapter yet
    Column("path", Text),
    Column("manifest_sha256", Text),
    Column("refusal", Text),  # why an engine refuses it
    Column("created_at", Double, nullable=False),
    Column("answered_at", Double),
    UniqueConstraint("alias_id"),
)

# What an operator is told (`recorder.queue.notifications`), newest last; bounded by age and number.
notifications = Table(
    "notifications",
    metadata,
    _id(),  # sent along, so that a receiver recognizes a repetition
    _project(),
    Column("kind", Text, nullable=False),
    Column("event", Text, nullable=False),  # what it is about: each event is told once
    Column("what", Text, nullable=False),  # one sentence, without recorded text
    Column("link", Text, nullable=False),  # a path of the pages
    Column("figures", JSON, nullable=False),
    Column("at", Double, nullable=False),  # when it happened
    Column("state", Text, nullable=False),
    Column("omitted", Integer, nullable=False, default=0, server_default="0"),  # others of its kind that it counts
    Column("counted_in", Text),  # the notification that counts it
    Column("tries", Integer, nullable=False, default=0, server_default="0"),
    Column("tried_at", Double),
    Column("try_after", Double),
    Column("sent_at", Double),
    Column("error", Text),  # why the last try failed
    UniqueConstraint("project_id", "event"),
    Index("ix_notifications_newest", "project_id", "id"),
    _some("ix_notifications_waiting", "state = 'waiting'", "project_id", "kind"),
)

# How far a project's events are read for notifications.
notification_cursors = Table(
    "notification_cursors",
    metadata,
    Column("project_id", Text, ForeignKey("projects.id"), primary_key=True),
    Column("settled_id", Integer, nullable=False),  # rows of the ledger up to this id are read for good
    Column("mark_id", Integer, nullable=False),  # the newest row at `marked_at`, which settles later
    Column("marked_at", Double, nullable=False),
    Column("present", JSON, nullable=False),  # the conditions (alarms, pauses) that held at the last look
)

# Settings that people changed at run time (`recorder.setting_changes`). Of a key, the highest number counts.
setting_changes = Table(
    "setting_changes",
    metadata,
    _project(),
    Column("key", Text, nullable=False),  # as in hone.toml, dotted
    Column("number", Integer, nullable=False),  # from 1, of this key
    Column("before", JSON, nullable=False),
    Column("after", JSON, nullable=False),
    Column("undone", Boolean, nullable=False),  # hone.toml, variables and flags hold again
    Column("who", Text, nullable=False),  # a key's id, or the actor while no key is required
    Column("at", Double, nullable=False),
    PrimaryKeyConstraint("project_id", "key", "number"),
)

changes = Table(
    "changes",
    metadata,
    Column("topic", Text, primary_key=True),  # of recorder.store.changes
    Column("count", Integer, nullable=False),
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    _project(),
    Column("object_kind", Text, nullable=False),  # trajectory, group, call, version, step, attempt, engine
    Column("object_id", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("detail", JSON),
    Column("at", Double, nullable=False),
    Index(None, "object_kind", "object_id"),
    Index(None, "project_id", "code"),
    Index(None, "project_id", "object_kind", "code"),  # for counts
)
