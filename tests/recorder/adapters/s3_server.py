"""moto's S3 server in this process, on a port of its own, with what tests do to it beside the code under test.

moto and boto3 are imported when a test needs them: they take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

ACCESS_KEY = "AKIA-of-the-tests-0001"
SECRET_KEY = "a-secret-of-the-tests-0001"


@dataclass(frozen=True)
class S3Server:
    """A running server."""

    endpoint: str

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """The variables of a program that uses it."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
        }

    def client(self) -> Any:
        """A client of another library than the one under test."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
        )

    def make_bucket(self, name: str) -> None:
        """An empty bucket."""
        self.client().create_bucket(Bucket=name)


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """A server until the block ends."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()
