"""What the whole proxy costs: every call recorded in a SQLite file, before an upstream that answers at once.

One worker; short calls without streaming, then streamed ones. `cpu_us_*` is CPU time of the proxy's process, recorder
included; it does not shake with what else the machine does. Fails when a call is not in the store afterwards. Writes
results/proxy.json.

    python benchmarks/proxy.py [--seconds 5] [--connections 32]
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import load

RESULTS = Path(__file__).parent / "results" / "proxy.json"
PATHS = {"by lineage": "/v1/chat/completions", "addressed": "/g/bench/t/one/v1/chat/completions"}


def run_proxy(port: int, upstream_port: int, data: str) -> None:
    """Serve Hone until killed (the target of a child process)."""
    from proxy.app import Deps, create_app
    from proxy.sections import ProxySettings
    from proxy.server import listen, serve
    from proxy.versions import InService
    from recorder.aliases import ensure_alias
    from recorder.migrate import open_store
    from recorder.recorder import Recorder
    from recorder.replicas import report_replica
    from recorder.settings import RecorderSettings

    async def main() -> None:
        recording, settings = RecorderSettings(), ProxySettings()
        store = await open_store(Path(data), recording, migrate=True)
        await ensure_alias(store, "default", "bench", "bench", "f")
        url = f"http://127.0.0.1:{upstream_port}"
        await report_replica(
            store,
            "default",
            url,
            base_model="bench",
            base_fingerprint="f",
            state="up",
            detail=None,
            loaded=["bench"],
        )
        versions = InService(store, "default", settings)
        app = create_app(Deps("default", settings, recording, store, Recorder(store, recording), versions))
        await serve(app, listen("127.0.0.1", port))

    uvloop.run(main())


def measure(process: Any, port: int, path: str, connections: int, seconds: float) -> dict[str, Any]:
    """Figures of one kind of call."""
    load.drive(port, path, load.REQUEST, connections, 1.0)
    load.drive(port, path, load.STREAM_REQUEST, connections, 0.5)
    before_s = load.cpu_s(process)
    plain = load.drive(port, path, load.REQUEST, connections, seconds)
    between_s = load.cpu_s(process)
    stream = load.drive(port, path, load.STREAM_REQUEST, connections, seconds)
    after_s = load.cpu_s(process)
    alone = load.drive(port, path, load.REQUEST, 1, 1.0)
    assert plain.failures + stream.failures == 0, plain.first_failure or stream.first_failure
    return {
        "requests_per_s": round(plain.requests / plain.seconds),
        "p50_ms": round(plain.p50_ms, 2),
        "p99_ms": round(plain.p99_ms, 2),
        "p50_ms_one_connection": round(alone.p50_ms, 2),
        "cpu_us_per_request": round(1e6 * (between_s - before_s) / plain.requests),
        "events_per_s": round(stream.events / stream.seconds),
        "cpu_us_per_event": round(1e6 * (after_s - between_s) / stream.events, 1),
        "events_per_s_a_core": round(stream.events / (after_s - between_s)),
    }


def main() -> None:
    """Measure, check that all is recorded, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=32)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    upstream_port = load.free_port()
    with tempfile.TemporaryDirectory() as data, load.child(load.run_upstream, upstream_port):
        for what, path in PATHS.items():
            port = load.free_port()
            with load.child(run_proxy, port, upstream_port, data) as proxy:
                rows.append({"what": what} | measure(proxy, port, path, args.connections, args.seconds))
        with sqlite3.connect(Path(data) / "hone.db") as store:
            states = dict(store.execute("SELECT state, count(*) FROM calls GROUP BY state"))
        assert set(states) == {"complete"}, states
        size_bytes = (Path(data) / "hone.db").stat().st_size
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    setup = load.machine() | {
        "connections": args.connections,
        "recorded_calls": states["complete"],
        "store_bytes_per_call": round(size_bytes / states["complete"]),
    }
    print(setup)
    RESULTS.write_bytes(orjson.dumps({"setup": setup, "rows": rows}, option=orjson.OPT_INDENT_2) + b"\n")


if __name__ == "__main__":
    main()
