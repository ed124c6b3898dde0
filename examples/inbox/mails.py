"""The mailbox: 672 mails made from a seed, in SQLite with full-text search.

Owns senders, recipients and subjects, the facts in the mails (a door code, a flight, an amount, a day), the split of
the mails into parts, and the database. A person's two mails about a project are in one part, so parts share no mail and
no fact. Refuses wording (`wording`) and questions (`scenarios`).
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Final, Literal

Kind = Literal["code", "flight", "amount", "day"]
PEOPLE: Final = (
    "Anna", "Ben", "Carla", "David", "Emma", "Felix", "Greta", "Hugo", "Ivan", "Julia", "Kurt", "Lena",
    "Marco", "Nora", "Oscar", "Paula", "Ralf", "Sara", "Tom", "Ute", "Victor", "Wanda", "Yara", "Zoe",
)  # fmt: skip
PROJECTS: Final = (
    "Amber", "Birch", "Comet", "Delta", "Ember", "Falcon", "Garnet", "Harbor", "Indigo", "Jasper", "Kestrel", "Lagoon",
    "Maple", "Nimbus",
)  # fmt: skip
KINDS: Final[tuple[Kind, ...]] = ("code", "flight", "amount", "day")
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
MAILS_OF_A_THREAD: Final = 2
TEST_THREADS, VAL_THREADS = 104, 32  # of 336; the rest is for training
MOST_HITS: Final = 4
_NEW_YEAR: Final = date(2026, 1, 1)
_WORD: Final = re.compile(r"\w+")
_FIGURES: Final = {"code": (1_000, 10_000), "flight": (100, 1_000), "amount": (100, 1_000)}


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail, and the fact in it."""

    mail_id: str
    sender: str
    project: str
    kind: Kind
    value: str
    sent: date


@dataclass(frozen=True, slots=True)
class Mailbox:
    """All mails, by the part that their questions belong to."""

    train: Sequence[Mail]
    val: Sequence[Mail]
    test: Sequence[Mail]

    @property
    def mails(self) -> list[Mail]:
        """Return the mails of all parts."""
        return [*self.train, *self.val, *self.test]


def make_mailbox(seed: int) -> Mailbox:
    """Return a mailbox, the same for the same seed."""
    rng = random.Random(f"mailbox-{seed}")
    ids = iter(rng.sample(range(1_000, 10_000), len(PEOPLE) * len(PROJECTS) * MAILS_OF_A_THREAD))
    threads = [
        [random_mail(rng, sender, project, kind, next(ids)) for kind in rng.sample(KINDS, MAILS_OF_A_THREAD)]
        for sender in PEOPLE
        for project in PROJECTS
    ]
    rng.shuffle(threads)
    held = TEST_THREADS + VAL_THREADS
    return Mailbox(
        train=_flat(threads[held:], rng),
        val=_flat(threads[TEST_THREADS:held], rng),
        test=_flat(threads[:TEST_THREADS], rng),
    )


def random_mail(rng: random.Random, sender: str, project: str, kind: Kind, number: int) -> Mail:
    """Return a mail with a random fact and date."""
    return Mail(str(number), sender, project, kind, random_value(rng, kind), _NEW_YEAR + timedelta(rng.randrange(365)))


def random_value(rng: random.Random, kind: Kind) -> str:
    """Return a random value of this kind of fact."""
    return rng.choice(DAYS) if kind == "day" else str(rng.randrange(*_FIGURES[kind]))


def _flat(threads: Iterable[Sequence[Mail]], rng: random.Random) -> list[Mail]:
    mails = [mail for thread in threads for mail in thread]
    return rng.sample(mails, len(mails))


def write_database(path: Path, mails: Iterable[Mail], body: dict[str, str]) -> None:
    """Write the mails; an existing file is replaced. `body`: each mail's text, by its id."""
    path.unlink(missing_ok=True)
    rows = [(m.mail_id, m.sender, f"{m.project} {m.kind}", m.sent.isoformat(), body[m.mail_id]) for m in mails]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE VIRTUAL TABLE mails USING fts5(mail_id UNINDEXED, sender, subject, sent UNINDEXED, body)"
        )
        connection.executemany("INSERT INTO mails VALUES (?, ?, ?, ?, ?)", rows)


class MailDatabase:
    """The tools' read-only access to the mails.

    Raises:
        FileNotFoundError: the database does not exist.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"mail database {path} does not exist: write it with examples.inbox.scenarios")
        self._path = path

    def search(self, query: str) -> list[tuple[str, str, str]]:
        """Return (id, sender, subject) of the newest mails that have every word of the query."""
        # only letters and digits, so that no query is an FTS5 expression
        words = " ".join(f'"{word}"' for word in _WORD.findall(query))
        if not words:
            return []
        found = "SELECT mail_id, sender, subject FROM mails WHERE mails MATCH ? ORDER BY sent DESC, mail_id LIMIT ?"
        with self._reading() as connection:
            return connection.execute(found, (words, MOST_HITS)).fetchall()

    def read(self, mail_id: str) -> tuple[str, str, str] | None:
        """Return (sender, date, body) of a mail, or None."""
        found = "SELECT sender, sent, body FROM mails WHERE mail_id = ?"
        with self._reading() as connection:
            row: tuple[str, str, str] | None = connection.execute(found, (mail_id,)).fetchone()
        return row

    def _reading(self) -> closing[sqlite3.Connection]:
        return closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True))
