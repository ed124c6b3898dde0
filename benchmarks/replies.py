"""How long the worst possible judge replies take to be read or refused: the claim is half a second.

    python -m benchmarks.replies --save        writes benchmarks/results/replies.json

Each reply has the maximum length, and consists of one repeated piece, or of one endless number or text. All are read as
RULER's, as a rubric's, and as a rubric's that has to quote a long response.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.load import machine
from judge.errors import ReplyRefused
from judge.llm.reply_reader import read_reply
from judge.llm.rubric import read_rubric_reply
from recorder.llm.json_reply import MAX_REPLY_CHARS

RESULTS = Path(__file__).parent / "results" / "replies.json"
IDS = ("t-aa", "t-bb")
TIMES = 3  # each is read this often; the slowest counts
VERDICT = '{"trajectories":[{"id":"t-aa","score":1},{"id":"t-bb","score":0}]}'
CHECKED = '{"criteria":[{"id":"t-aa","reason":"r","met":true},{"id":"t-bb","reason":"r","met":false}]}'
RESPONSE = ["a" * 1_200] * 200  # the maximum prompt of a judge (judge.max_context_chars), in this many messages
PIECES = (
    "[", "{", "[]", "{}", "[1,", '{"a":', '["', '{"\\"', "[[],", '[{"id":1},', "}{", "{ ", "\n[x", '{"a":1}{', " ", "9",
    '"', "é[", "😀[", "0.1,", "<think>", "</think>", "<think></think>", '"score" ', VERDICT, CHECKED,
)  # fmt: skip
ENDLESS = ("{}", "1.{}", '"{}x"', '"0.{}"', '"9/{}x"')  # scores, with nines for the braces
LONG = (
    '"reason":"r","met":{}',
    '"met":true,"reason":"{}"',
    '"met":true,"reason":"r","quote":"{}"',
)  # a verdict's, likewise
READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "ruler": lambda reply: read_reply(reply, IDS),
    "rubric": lambda reply: read_rubric_reply(reply, IDS),
    "rubric, quoting": lambda reply: read_rubric_reply(reply, IDS, RESPONSE),
}


def replies() -> Iterator[tuple[str, str]]:
    """Yield each reply with its name."""
    for piece in PIECES:
        yield piece, (piece * (MAX_REPLY_CHARS // len(piece) + 1))[:MAX_REPLY_CHARS]
    for score in ENDLESS:
        said = score.replace("{}", "9" * (MAX_REPLY_CHARS - 100))
        yield f"score {score}", f'{{"trajectories":[{{"id":"t-aa","score":{said}}},{{"id":"t-bb","score":0}}]}}'
    for verdict in LONG:
        for filled in ("9", "a", "a "):
            said = verdict.replace("{}", filled * ((MAX_REPLY_CHARS - 200) // len(filled)))
            two = f'{{"id":"t-aa",{said}}},{{"id":"t-bb","reason":"r","met":false}}'
            yield f"verdict {verdict} of {filled!r}", f'{{"criteria":[{two}]}}'


def seconds(read: Callable[[str], Any], reply: str) -> float:
    """Return the longest reading time in CPU seconds, so that other programs do not count."""
    slowest = 0.0
    for _ in range(TIMES):
        started = time.process_time()
        with suppress(ReplyRefused):
            read(reply)
        slowest = max(slowest, time.process_time() - started)
    return slowest


def main() -> None:
    """Measure and print; with `--save`, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS}")
    found = {by: {name: round(seconds(read, reply), 4) for name, reply in replies()} for by, read in READERS.items()}
    print(json.dumps(found, indent=2, ensure_ascii=False))
    for by, took in found.items():
        print(f"slowest ({by}): {max(took.values())} s")
    if parser.parse_args().save:
        RESULTS.write_text(json.dumps({"machine": machine(), "seconds": found}, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
