"""Logs: the last lines and those since, whole and bounded, and no key in any of them."""

from __future__ import annotations

import itertools
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.programs import log_files
from proxy.programs.log_files import cut_log, mask_log, old_log, read_after, read_tail
from recorder.registry.keys import PREFIX

SECRET = "s3cr3t/of+the=judge"


def written(path: Path, *lines: str) -> Path:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def test_the_last_lines_and_then_those_since(tmp_path: Path) -> None:
    log = written(tmp_path / "proxy.log", *(f"line {number}" for number in range(1500)))
    part = read_tail(log, ())
    assert (len(part.lines), part.lines[0], part.lines[-1], part.skipped) == (1000, "line 500", "line 1499", True)
    assert read_after(log, part.next, ()).lines == []
    with log.open("a") as file:
        file.write("one\ntwo\nhalf of a li")
    since = read_after(log, part.next, ())
    assert (since.lines, since.skipped) == (["one", "two"], False)
    with log.open("a") as file:
        file.write("ne\n")
    assert read_after(log, since.next, ()).lines == ["half of a line"]


def test_a_log_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    part = read_tail(tmp_path / "no.log", ())
    assert (part.lines, part.next, part.skipped) == ([], 0, False)


def test_a_log_that_was_emptied_is_read_with_what_it_had(tmp_path: Path) -> None:
    log = written(tmp_path / "learn.log", "old 1", "old 2")
    place = read_tail(log, ()).next
    assert not cut_log(log, limit=100)
    assert cut_log(log, limit=5)
    with log.open("a") as file:
        file.write("new\n")
    assert read_tail(log, ()).lines == ["old 1", "old 2", "new"]
    since = read_after(log, place, ())
    assert (since.lines, since.skipped) == (["new"], True)
    assert stat.S_IMODE(old_log(log).stat().st_mode) == 0o600


def test_a_program_that_still_writes_goes_on_at_the_beginning_of_the_emptied_log(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    with log.open("ab", buffering=0) as program:
        program.write(b"before\n" * 10)
        assert cut_log(log, limit=5)
        program.write(b"after\n")
    assert log.read_bytes() == b"after\n"


def test_one_answer_reads_a_bounded_part_of_a_long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "WINDOW_BYTES", 100)
    log = written(tmp_path / "l.log", *(f"line {number:03}" for number in range(50)))
    part = read_tail(log, ())
    assert part.lines == [f"line {number:03}" for number in range(39, 50)]
    assert part.skipped
    since = read_after(log, 9, ())
    assert since.skipped
    assert since.lines == part.lines
    log.write_bytes(b"x" * 1000)  # no line is complete
    assert read_tail(log, ()).lines == []
    long = written(log, "y" * 1000, "end")
    assert read_tail(long, ()).lines == ["end"]


def test_a_long_line_is_cut_after_its_keys_are_masked(tmp_path: Path) -> None:
    log = written(tmp_path / "l.log", "a" * (log_files.LINE_CHARS - 5) + SECRET)
    [line] = read_tail(log, [SECRET]).lines
    assert line.endswith("a***")
    [line] = read_tail(written(log, "b" * (log_files.LINE_CHARS + 1500)), ()).lines
    assert line.endswith(" … 1,500 characters more")


def test_colours_go_and_other_control_characters_are_seen(tmp_path: Path) -> None:
    log = written(tmp_path / "l.log", "\x1b[32mINFO\x1b[0m ready", "10%\r50%\r100%", "a\x07b\u202ec", "crlf\r")
    first, bar, hostile, crlf = read_tail(log, ()).lines
    assert (first, bar, crlf) == ("INFO ready", "100%", "crlf")
    assert not set(hostile) & {"\x07", "\u202e"}


OWN = PREFIX + "Zx81_" + "k" * 40


@pytest.mark.parametrize(
    "text",
    [
        f"key {OWN} was created",
        f"--api-key {SECRET}",
        f"'--api-key', '{SECRET}'",
        f"--api-key={SECRET}",
        f"non-default args: {{'api_key': ['{SECRET}'], 'model': 'm'}}",
        f'{{"OPENAI_API_KEY": "{SECRET}"}}',
        f"Authorization: Bearer {SECRET}",
        f"GET /v1?api_key={SECRET}&x=1",
        f"postgresql://hone:{SECRET.replace('/', '')}@db/hone",
        "sk-proj-0123456789abcdef0123",
        "hf_0123456789abcdefABCD",
    ],
)
def test_what_has_the_form_or_the_name_of_a_key_is_masked_though_nobody_knows_it(text: str) -> None:
    shown = mask_log(text, ())
    for secret in (OWN, SECRET, SECRET.replace("/", ""), "0123456789abcdef"):
        assert secret not in shown
    assert "***" in shown


def test_names_of_metrics_counts_of_tokens_and_paths_stay() -> None:
    for text in ("hone_redaction_timeouts_of_calls_and_texts_total 3", "prompt_tokens: 12345678", "GET /v1/models 200"):
        assert mask_log(text, ()) == text


def test_keys_of_the_environment_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PROVIDER_KEY", "qwertyuiop")
    assert mask_log("the key qwertyuiop is wrong", ()) == "the key *** is wrong"


_PLAIN = st.text(st.sampled_from("ab \r\x1b[0m'\"=:,\u202eé"), max_size=12)


@given(
    lines=st.lists(st.tuples(_PLAIN, st.booleans(), _PLAIN), max_size=20),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_whatever_stands_around_it_and_whenever_it_is_read_a_known_key_is_in_no_answer(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, bool, str]], cuts: list[int]
) -> None:
    """A program writes a log in pieces, of which some end within a key; a page reads after each piece."""
    log = tmp_path_factory.mktemp("log") / "p.log"
    content = "".join(f"{before}{SECRET if secret else ''}{after}\n" for before, secret, after in lines).encode()
    edges = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    seen: list[str] = []
    place = 0
    log.touch()
    for begin, end in itertools.pairwise(edges):
        with log.open("ab") as file:
            file.write(content[begin:end])
        part = read_after(log, place, [SECRET])
        place = part.next
        seen += part.lines
        assert not part.skipped
    whole = read_tail(log, [SECRET])
    assert seen == whole.lines
    assert len(seen) == len(lines)
    assert not any(SECRET in line for line in seen)
