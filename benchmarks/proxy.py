"""The overhead of the whole proxy, recording every call, beside the bare upstream and two common gateways.

Every wire format, streaming and not, before one static upstream: direct, through Hone, through LiteLLM's proxy and
through vllm-router (Rust, records nothing), each with one worker. Because other work on a machine changes the figures,
the four alternate round by round, and medians over the rounds are reported with their spread. "Added" is the difference
to the bare upstream in the same round, on one connection. Every request asks something else, and Hone's caches are full
from the beginning, as they are after days. Fails if Hone fails a call, or if a call through Hone is missing from the
store afterwards. A rival's failed calls are counted and shown beside its figures, and are not in its rates.

    python -m benchmarks.proxy [--rounds 5] [--seconds 2] [--connections 32] [--workers 1] [--no-rivals] [--save]

With `--workers` Hone runs as that many processes on one port, as with `hone serve --workers`; their CPU time is summed.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import psutil
import uvloop

from benchmarks import full_caches, load, rivals
from benchmarks.formats import Format, formats, upstream_answers
from proxy.dialects import DIALECTS
from recorder.store.database import Project

RESULTS = Path(__file__).parent / "results" / "proxy.json"
ALONE, HONE = "upstream alone", "Hone"
LONG_CONNECTIONS = 4
SLOWEST_S = 5.0  # a slower case is measured with one call: more at once would take minutes


def run_proxy(
    port: int,
    upstream_port: int,
    data: str,
    shared: bool = False,
    store_url: str | None = None,
    full: bool = True,
) -> None:
    """Serve Hone until killed (the target of a child process). `shared`: as one of several on the port.

    `store_url`: its store, if that is no file in `data`. `full`: with full caches.
    """
    from proxy.settings.sections import ProxySettings
    from proxy.supervision.app import AppParts, create_app
    from proxy.supervision.serve import serve
    from proxy.supervision.sockets import listen
    from proxy.versions.routing import ServiceRouter
    from recorder.capture.recorder import Recorder
    from recorder.registry.aliases import ensure_alias
    from recorder.registry.replicas import report_replica
    from recorder.settings import RecorderSettings
    from recorder.store.bootstrap import open_store

    async def main() -> None:
        recording, settings = RecorderSettings(url=store_url), ProxySettings()
        store = await open_store(Path(data), recording, migrate=True)
        await ensure_alias(Project(store, "default"), "bench", "bench", "f")
        url = f"http://127.0.0.1:{upstream_port}"
        await report_replica(
            Project(store, "default"),
            url,
            base_model="bench",
            base_fingerprint="f",
            state="up",
            detail=None,
            loaded=["bench"],
        )
        versions = ServiceRouter(Project(store, "default"), settings)
        pages_store = store.limited(settings.pages_timeout_s)
        recorder = Recorder(store, recording)
        app = create_app(
            AppParts(Project(store, "default"), settings, recording, recorder, versions, pages_store=pages_store)
        )
        if full:
            full_caches.fill()
        await serve(app, listen("127.0.0.1", port, shared=shared))

    uvloop.run(main())


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of call."""

    name: str
    path: str
    body: bytes
    connections: int


@dataclass(frozen=True, slots=True)
class Subject:
    """A measured subject: a port, and the processes whose CPU time is read."""

    name: str
    port: int
    processes: Sequence[psutil.Process]

    def cpu_s(self) -> float:
        """Return the CPU seconds of the processes."""
        return sum(map(load.cpu_s, self.processes))


@dataclass(frozen=True, slots=True)
class Sample:
    """One round's figures of one subject and case."""

    busy: load.Load  # with all connections
    single: load.Load  # with one connection
    cpu_s: float  # of `busy`

    @property
    def failures(self) -> int:
        """How many calls of both failed."""
        return self.busy.failures + self.single.failures


def cases(served: Sequence[Format], connections: int) -> list[Case]:
    """Return every format that Hone serves, streaming and not; then one stream of 10,000 events."""
    found = [
        Case(f"{one.name}{', streaming' if stream else ''}", one.path, one.request(stream=stream), connections)
        for one in served
        for stream in (False, True)
    ]
    chat = served[0]
    long = chat.request(stream=True)[:-1] + b',"max_tokens":%d}' % load.LONG
    return [*found, Case(f"{chat.name}, {load.LONG:,} events", chat.path, long, LONG_CONNECTIONS)]


def measure(subject: Subject, case: Case, seconds: float) -> Sample | None:
    """Return one sample; None if the subject does not serve this kind of call."""
    before_s = subject.cpu_s()
    probe = load.drive(subject.port, case.path, case.body, 1, 0.0)
    if probe.failures:
        return None
    if probe.p50_ms > 1000 * SLOWEST_S:
        return Sample(probe, probe, subject.cpu_s() - before_s)
    before_s = subject.cpu_s()
    busy = load.drive(subject.port, case.path, case.body, case.connections, seconds)
    cpu_s = subject.cpu_s() - before_s
    single = load.drive(subject.port, case.path, case.body, 1, seconds / 2)
    for one in (busy, single):
        if one.failures:
            _report_failures(subject, case, one)
    return Sample(busy, single, cpu_s)


def _report_failures(subject: Subject, case: Case, found: load.Load) -> None:
    """Print a rival's failed calls. Raises RuntimeError if they are the upstream's or Hone's, or if all failed."""
    text = f"{subject.name} failed {found.failures} of {found.requests} calls of {case.name}: {found.first_failure}"
    if subject.name in (ALONE, HONE) or found.failures == found.requests:
        raise RuntimeError(text)
    print(text, flush=True)


Samples = dict[tuple[str, str], list[Sample | None]]  # (case, subject) → one sample per round


def run_rounds(subjects: Sequence[Subject], kinds: Sequence[Case], rounds: int, seconds: float) -> Samples:
    """Run all rounds. In each, the subjects alternate case by case, and another one begins."""
    found: Samples = {}
    for number in range(rounds):
        for case in kinds:
            for at in range(len(subjects)):
                subject = subjects[(at + number) % len(subjects)]
                sample = measure(subject, case, seconds)
                found.setdefault((case.name, subject.name), []).append(sample)
        print(f"round {number + 1} of {rounds} done", flush=True)
    return found


# --- figures


def spread(values: Sequence[float], digits: int = 2) -> dict[str, float]:
    """Return the median of some figures, and their range."""
    rounded = [round(value, digits) for value in (median(values), min(values), max(values))]
    return dict(zip(("median", "least", "most"), rounded, strict=True))


def figures(own: Sequence[Sample], alone: Sequence[Sample]) -> dict[str, Any]:
    """Return the figures of one subject and case over the rounds."""
    row: dict[str, Any] = {
        "requests_per_s": spread([(s.busy.requests - s.busy.failures) / s.busy.seconds for s in own], 0),
        "p50_ms": spread([s.busy.p50_ms for s in own]),
        "p99_ms": spread([s.busy.p99_ms for s in own]),
        "added_p50_ms": spread([s.single.p50_ms - a.single.p50_ms for s, a in zip(own, alone, strict=True)]),
        "added_p99_ms": spread([s.single.p99_ms - a.single.p99_ms for s, a in zip(own, alone, strict=True)]),
        "cpu_us_per_request": spread([1e6 * s.cpu_s / s.busy.requests for s in own], 0),
        "failed_calls": sum(s.failures for s in own),
    }
    if own[0].single.first_p50_ms is not None:
        firsts = [(s.single.first_p50_ms or 0.0, a.single.first_p50_ms or 0.0) for s, a in zip(own, alone, strict=True)]
        row["first_event_ms"] = spread([first for first, _ in firsts])
        row["added_first_event_ms"] = spread([first - before for first, before in firsts])
        row["events_per_s"] = spread([s.busy.events / s.busy.seconds for s in own], 0)
        # A process whose CPU time did not change by a clock tick has no such figure.
        if all(s.cpu_s > 0 for s in own):
            row["events_per_s_a_core"] = spread([s.busy.events / s.cpu_s for s in own], 0)
    return row


def table(samples: Samples) -> list[dict[str, Any]]:
    """Return a row for every case and subject; `served` is false if it does not know the format."""
    rows = []
    for (case, subject), own in samples.items():
        whole = [sample for sample in own if sample is not None]
        alone = [sample for sample in samples[case, ALONE] if sample is not None]
        served = len(whole) == len(own)
        rows.append({"case": case, "subject": subject, "served": served} | (figures(whole, alone) if served else {}))
    return rows


def bars(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return Hone's figures for short plain chat calls, compared with the others."""
    rates = {row["subject"]: row["requests_per_s"]["median"] for row in rows if row["case"] == "chat" and row["served"]}
    return {f"times {name}": round(rates[HONE] / rate, 3) for name, rate in rates.items() if name != HONE}


COLUMNS = {
    "requests/s": "requests_per_s",
    "p50 ms": "p50_ms",
    "p99 ms": "p99_ms",
    "+p50 ms": "added_p50_ms",
    "+p99 ms": "added_p99_ms",
    "first ms": "first_event_ms",
    "+first ms": "added_first_event_ms",
    "events/s": "events_per_s",
    "CPU µs": "cpu_us_per_request",
}


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the medians, with the range of the rate."""
    print(f"{'case':<24}{'subject':<16}" + "".join(f"{name:>12}" for name in COLUMNS) + "   requests/s between")
    for row in sorted(rows, key=lambda row: row["case"]):
        if not row["served"]:
            print(f"{row['case']:<24}{row['subject']:<16}{'not served':>12}")
            continue
        cells = [f"{row[key]['median']:g}" if key in row else "" for key in COLUMNS.values()]
        rate = row["requests_per_s"]
        between = f"   {rate['least']:g} to {rate['most']:g}"
        between += f", {row['failed_calls']} calls failed" if row["failed_calls"] else ""
        print(f"{row['case']:<24}{row['subject']:<16}" + "".join(f"{cell:>12}" for cell in cells) + between)


# --- the run


@contextlib.contextmanager
def subjects_running(folder: Path, *, with_rivals: bool, workers: int = 1) -> Iterator[list[Subject]]:
    """Run the upstream, Hone and the others until the block ends."""
    upstream_port, port = load.free_port(), load.free_port()
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(load.child(load.run_upstream, upstream_port, upstream_answers()))
        proxy = run_proxy, port, upstream_port, str(folder / "data"), workers > 1
        hone = [stack.enter_context(load.child(*proxy)) for _ in range(workers)]  # the first worker creates the store
        for one in hone:
            load.wait_until_listening(one, port)
        found = [Subject(ALONE, upstream_port, [upstream]), Subject(HONE, port, hone)]
        for rival in rivals.rivals(upstream_port, folder) if with_rivals else ():
            found.append(Subject(rival.name, rival.port, [stack.enter_context(rivals.running(rival, folder))]))
        yield found


def require_recorded(data: Path) -> dict[str, int]:
    """Count Hone's recorded calls. Raises if a call is not complete."""
    with contextlib.closing(sqlite3.connect(data / "hone.db")) as store:
        states: dict[str, int] = dict(store.execute("SELECT state, count(*) FROM calls GROUP BY state"))
    if set(states) != {"complete"}:
        raise RuntimeError(f"not every call was recorded as complete: {states}")
    calls = states["complete"]
    return {"recorded_calls": calls, "store_bytes_per_call": round((data / "hone.db").stat().st_size / calls)}


def main() -> None:
    """Measure, check that all calls are recorded, and print the table; with `--save`, save it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each measurement on all connections")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1, help="processes of Hone on one port")
    parser.add_argument("--no-rivals", action="store_true", help="Hone and the upstream alone")
    parser.add_argument(
        "--save", action="store_true", help="write results/proxy.json, or the file for this number of workers"
    )
    args = parser.parse_args()
    if not args.no_rivals:
        rivals.ensure()
    served = [one for one in formats() if one.path in DIALECTS]
    for one in formats():
        if one not in served:
            print(f"{one.name}: skipped, Hone does not record {one.path} yet")
    machine = load.machine()
    with tempfile.TemporaryDirectory() as folder:
        with subjects_running(Path(folder), with_rivals=not args.no_rivals, workers=args.workers) as subjects:
            samples = run_rounds(subjects, cases(served, args.connections), args.rounds, args.seconds)
        recorded = require_recorded(Path(folder) / "data")
    rows = table(samples)
    show(rows)
    setup = (
        machine
        | {"workers": args.workers, "connections": args.connections, "rounds": args.rounds, "seconds": args.seconds}
        | recorded
    )
    print(setup, bars(rows))
    if args.save:
        results = RESULTS if args.workers == 1 else RESULTS.with_stem(f"proxy-{args.workers}-workers")
        result = {"setup": setup, "rates": bars(rows), "rows": rows}
        results.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2) + b"\n")


if __name__ == "__main__":
    main()
