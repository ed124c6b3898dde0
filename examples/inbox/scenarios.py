"""Write the example's files: the mailbox, and the questions for training, validation and the final test.

    python -m examples.inbox.scenarios FOLDER

Owns the files' names and the form of a scenario: ``{"id", "input": {"question"}, "reference": {"kind", "value"}}``. No
mail has questions in two parts.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.inbox.mails import Mail, make_mailbox, write_database
from examples.inbox.wording import body, question

SEED = 7


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of the example's files."""

    database: Path
    train: Path
    val: Path
    test: Path


def files_in(folder: Path) -> Files:
    """Return the paths of the files in a folder."""
    return Files(folder / "mails.sqlite", folder / "train.jsonl", folder / "val.jsonl", folder / "test.jsonl")


def write(folder: Path, seed: int = SEED, most_test: int | None = None) -> Files:
    """Write the mailbox and all questions; existing files are replaced. `most_test`: maximum size of the test part."""
    folder.mkdir(parents=True, exist_ok=True)
    files, mailbox, rng = files_in(folder), make_mailbox(seed), random.Random(seed)
    write_database(files.database, mailbox.mails, {mail.mail_id: body(mail) for mail in mailbox.mails})
    _write(files.train, mailbox.train, rng)
    _write(files.val, mailbox.val, rng)
    _write(files.test, mailbox.test[:most_test], rng)
    return files


def scenario(mail: Mail, rng: random.Random) -> dict[str, Any]:
    """Return one question about a mail, with the right answer."""
    return {
        "id": f"mail-{mail.mail_id}",
        "input": {"question": question(mail, rng)},
        "reference": {"kind": mail.kind, "value": mail.value},
    }


def _write(path: Path, mails: Sequence[Mail], rng: random.Random) -> None:
    path.write_text("".join(json.dumps(scenario(mail, rng)) + "\n" for mail in mails), encoding="utf-8")


def main() -> None:
    """Write the files and print their paths."""
    parser = argparse.ArgumentParser(description="Write the mailbox and the questions about it.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=SEED, help=f"another mailbox ({SEED})")
    given = parser.parse_args()
    files = write(given.folder, given.seed)
    print("\n".join(map(str, (files.database, files.train, files.val, files.test))))


if __name__ == "__main__":
    main()
