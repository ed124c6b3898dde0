"""PostgreSQL: its connections, the meaning of its errors, and notifications of changes.

Owns: connections that are tested before use and closed if the server does not respond, text that PostgreSQL can store,
which errors mean that the database is unavailable, and LISTEN. Refuses: the meaning of any table, and repeating a
transaction (`recorder.store.write_backends`). Imported only for PostgreSQL stores: asyncpg is an extra.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import asyncpg
from sqlalchemy import URL, Table, exc
from sqlalchemy.engine import Connection
from sqlalchemy.event import listens_for
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.util.concurrency import await_

from recorder.errors import StoreError, StoreUnavailable
from recorder.store import changes
from recorder.store.changes import Counts
from recorder.store.sql import UNHURRIED
from recorder.store.statement import column_json

log = logging.getLogger(__name__)

CONNECT_S = 10.0
BEGIN_S = 10.0  # a BEGIN waits for no lock, so a server that does not answer it hangs
ANSWER_S = 300.0  # for any other statement: the longest takes minutes in a store of a million trajectories
POOL_TIMEOUT_S: Final = 30.0  # SQLAlchemy's default
READ_ANYWAY_S = 30.0  # the counts are read this often, even without a notification
_SETTINGS: Final = {"application_name": "hone", "jit": "off"}  # Hone's statements take less time than JIT compilation
FAULTS: Final[tuple[type[Exception], ...]] = (
    exc.DBAPIError,
    exc.TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
# Classes of SQLSTATE (appendix A of the manual): connection, rollback, insufficient resources, operator intervention.
_AWAY: Final = ("08", "40", "53", "57P")
_LOCK_NOT_AVAILABLE: Final = "55P03"
_READ_ONLY: Final = "25006"  # connected to the former primary after a failover
_ROLLED_BACK: Final = "40"
_PROVEN: Final = "began a transaction"  # a key in a pooled connection's info
_PATIENCE: Final = "patience"  # the same


class _AnswerTimeout:
    """Closes a connection on which a query gets no answer.

    A stopped server still accepts packets, so neither the driver nor keep-alives notice. The caller gets the error of a
    broken connection, including the unknown outcome of a COMMIT. The driver's own timeout would leave a connection that
    waits forever for a cancellation.
    """

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection
        self._timer: asyncio.TimerHandle | None = None

    def asked(self, within_s: float) -> None:
        """Note that a query was sent."""
        self.answered()
        self._timer = asyncio.get_running_loop().call_later(within_s, self._end, within_s)

    def answered(self) -> None:
        """Note that the answer arrived."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _end(self, within_s: float) -> None:
        log.warning("PostgreSQL did not answer within %g s: the connection is closed", within_s)
        self._connection.terminate()


def create_engine(
    url: URL,
    pool_size: int,
    isolation: Literal["READ COMMITTED", "REPEATABLE READ"],
    read_limit_s: float | None = None,
) -> AsyncEngine:
    """Create the engine of a database. Transactions that need one snapshot use REPEATABLE READ.

    `read_limit_s`: the connections only read, and the server ends a statement that takes longer.
    """
    answer_s = ANSWER_S if read_limit_s is None else read_limit_s + BEGIN_S
    settings: dict[str, str] = dict(_SETTINGS)
    if read_limit_s is not None:
        settings |= {"default_transaction_read_only": "on", "statement_timeout": f"{read_limit_s * 1000:.0f}"}
    made = create_async_engine(
        url,
        pool_size=pool_size,
        pool_timeout=read_limit_s or POOL_TIMEOUT_S,
        isolation_level=isolation,
        hide_parameters=True,  # errors are logged and shown, and parameters contain users' text
        connect_args={"timeout": CONNECT_S, "server_settings": settings},
        json_serializer=column_json,
    )

    @listens_for(made.sync_engine, "checkout")
    def _begin(connection: Any, record: Any, proxy: Any) -> None:
        # asyncpg reports a connection as open after the server's last message, and also after it was cut unnoticed.
        # So BEGIN is sent here and not with the first statement: it proves the connection without an extra round trip.
        patience = record.info.setdefault(_PATIENCE, _AnswerTimeout(record.driver_connection))
        patience.asked(BEGIN_S)
        try:
            await_(connection._start_transaction())
        except (connection.dbapi.Error, OSError) as e:
            if _PROVEN not in record.info:  # a new connection: the database is unavailable
                raise
            raise exc.DisconnectionError("the server ended this connection") from e
        finally:
            patience.answered()
        record.info[_PROVEN] = True

    @listens_for(made.sync_engine, "checkin")
    def _rest(connection: Any, record: Any) -> None:
        if (patience := record.info.get(_PATIENCE)) is not None:
            patience.answered()

    @listens_for(made.sync_engine, "invalidate")
    def _cut(connection: Any, record: Any, error: BaseException | None) -> None:
        # SQLAlchemy would wait 2 s for a polite end, although the task was cancelled because it may not wait longer
        if isinstance(error, asyncio.CancelledError):
            record.driver_connection.terminate()

    @listens_for(made.sync_engine, "commit")
    @listens_for(made.sync_engine, "rollback")
    def _ending(connection: Connection) -> None:
        if not connection.invalidated:
            connection.info[_PATIENCE].asked(answer_s)

    @listens_for(made.sync_engine, "after_cursor_execute")
    def _answered(
        connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        connection.info[_PATIENCE].answered()

    @listens_for(made.sync_engine, "before_cursor_execute", retval=True)
    def _asking(
        connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> tuple[str, Any]:
        if not connection.get_execution_options().get(UNHURRIED):
            connection.info[_PATIENCE].asked(answer_s)
        return statement, [_without_nul(row) for row in parameters] if many else _without_nul(parameters)

    return made


async def copy_rows(conn: AsyncConnection, table: Table, rows: Iterable[Sequence[Any]]) -> None:
    """Write whole rows in the connection's transaction by COPY, in half the time of INSERTs.

    JSON is given as its text. No notification is sent (`recorder.store.changes`), since no process reads the table yet.
    Raises StoreError if PostgreSQL rejects a row.
    """
    raw = await conn.get_raw_connection()
    driver: asyncpg.Connection[Any] | None = raw.driver_connection
    assert driver is not None
    patience: _AnswerTimeout = raw.info[_PATIENCE]
    patience.asked(ANSWER_S)
    try:
        await driver.copy_records_to_table(table.name, records=rows, columns=[column.name for column in table.c])
    except asyncpg.InternalClientError as e:
        # The server's last message was read, but not the end of the stream: a rollback would only hide the cause.
        await conn.invalidate(e)
        raise
    except (ValueError, TypeError, ArithmeticError) as e:  # the driver cannot encode the value
        raise StoreError(f"PostgreSQL rejected a row of the table {table.name}: {_line(e)}") from e
    except asyncpg.PostgresError as e:
        if _means_away(e.sqlstate):
            raise
        where = f" ({e.context})" if e.context else ""
        raise StoreError(f"PostgreSQL rejected a row of the table {table.name}: {_line(e)}{where}") from e
    finally:
        patience.answered()


def _without_nul(row: Sequence[Any]) -> Sequence[Any]:
    """Return a row without NUL in its text, as `sql.storable_text` does. Nearly every row has none."""
    if not any(isinstance(value, str) and "\x00" in value for value in row):
        return row
    return tuple(value.replace("\x00", "\\u0000") if isinstance(value, str) else value for value in row)


def unavailability(error: BaseException) -> str | None:
    """Return why the database is unavailable, in one line; None if it rejected the statement."""
    if isinstance(error, exc.DBAPIError):
        # InternalClientError: asyncpg read the server's last message, but not the end of the stream
        broken = isinstance(error.driver_exception, asyncpg.InternalClientError)
        if broken or error.connection_invalidated or "connection is closed" in str(error.orig):
            return _line(error.orig)
        return _line(error.orig) if _means_away(getattr(error.orig, "sqlstate", None)) else None
    if isinstance(error, asyncpg.PostgresError) and not _means_away(error.sqlstate):
        return f"{_line(error)} (while connecting)"
    return _line(error)


def _means_away(sqlstate: str | None) -> bool:
    return sqlstate is not None and (sqlstate.startswith(_AWAY) or sqlstate in (_LOCK_NOT_AVAILABLE, _READ_ONLY))


def _line(error: BaseException | None) -> str:
    said = " ".join(str(error).split())
    return said or type(error).__name__


def was_rolled_back(error: BaseException) -> bool:
    """Whether the server answered a COMMIT with a rollback."""
    state = getattr(error.orig, "sqlstate", None) if isinstance(error, exc.DBAPIError) else None
    return state is not None and state.startswith(_ROLLED_BACK)


class PostgresChangeListener:
    """Receives changes on a connection that LISTENs (`changes.count_changes` notifies). It does not poll."""

    def __init__(self, made: AsyncEngine) -> None:
        self._engine = made
        self._connection: asyncpg.Connection[Any] | None = None
        self._counts: dict[str, int] = {}
        self._heard = asyncio.Event()
        self._news = False
        self._read_at = 0.0

    async def __call__(self) -> Counts | None:
        """Return the counts if a notification arrived since the last call, else None. Raises StoreUnavailable."""
        try:
            return await self._look()
        except FAULTS as e:
            self.close()
            raise StoreUnavailable(f"cannot receive notifications from the database: {_line(e)}") from e

    async def rest(self, within_s: float) -> None:
        """Return when a notification arrives or the connection ends, or after `within_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._heard.wait()
        self._heard.clear()

    async def _look(self) -> Counts | None:
        now = asyncio.get_running_loop().time()
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._listening()
            self._read_at = 0.0
        if not self._read_at or now - self._read_at > READ_ANYWAY_S:
            self._read_at = now
            self._counts = {str(row[0]): int(row[1]) for row in await self._connection.fetch(changes.READ)}
            self._news = True
        heard, self._news = self._news, False
        return dict(self._counts) if heard else None

    async def _listening(self) -> asyncpg.Connection[Any]:
        _, arguments = self._engine.dialect.create_connect_args(self._engine.url)
        connection = await asyncpg.connect(
            **arguments, timeout=CONNECT_S, command_timeout=BEGIN_S, server_settings=_SETTINGS
        )
        connection.add_termination_listener(lambda _: self._heard.set())
        try:
            await connection.add_listener(changes.CHANNEL, self._hear)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _hear(self, _connection: Any, _process: int, _channel: str, payload: object) -> None:
        self._counts |= changes.parse_notification(str(payload))
        self._news = True
        self._heard.set()

    def close(self) -> None:
        """Close the connection. The next call opens another."""
        if self._connection is not None:
            self._connection.terminate()
        self._connection = None
