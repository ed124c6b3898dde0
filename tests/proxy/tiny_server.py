"""A program to supervise: answers /health; /die, /hang do what they say, /wrong ends it with status 2.

Run: tiny_server.py PORT [OPTION ...].

Options: --spawn FILE starts a child that sleeps and writes its pid to FILE; --stubborn ignores SIGTERM;
--never is never healthy; --say TEXT logs a line.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

hung = threading.Event()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/die":
            print("dying as told", flush=True)
            os._exit(7)
        if self.path == "/wrong":
            print("no such flag", flush=True)
            os._exit(2)
        if self.path == "/hang":
            hung.set()
        elif hung.is_set():
            threading.Event().wait()
        healthy = self.path != "/health" or "--never" not in sys.argv
        self.send_response(200 if healthy else 503)
        self.end_headers()
        self.wfile.write(str(os.getpid()).encode())

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    options = sys.argv[2:]
    if "--say" in options:
        print(options[options.index("--say") + 1], flush=True)
    if "--stubborn" in options:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--spawn" in options:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(options[options.index("--spawn") + 1]).write_text(str(child.pid))
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
