"""Who holds a lease, and whether that process is dead: what a killed program left behind is taken over at once.

Owns: the form of a holder's name (`host:pid:random`), releasing leases of dead processes of this machine, and waiting
until a lease is free.
Refuses: judging other machines: their leases run out by themselves.
"""

from __future__ import annotations

import os
import secrets
import socket

from recorder.holding import leases
from recorder.store.changes import Topic
from recorder.store.project import Project


def holder_name() -> str:
    """A name for this process as a holder of leases."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def is_dead(holder: str) -> bool:
    """Whether the holder was a process of this machine that is no more. Doubt means no."""
    host, _, pid = holder.rpartition(":")[0].rpartition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


async def release_dead(project: Project, name: str) -> None:
    """Release the lease `name` if a dead process of this machine holds it."""
    for lease in await leases.holders(project, name):
        if lease.name == name and is_dead(lease.owner):
            await leases.release(project.store, lease)


async def until_free(project: Project, name: str) -> None:
    """Wait until a lease may be taken: let go, run out, or left behind by a dead process of this machine."""
    with project.store.watch.on(Topic.LEASES) as news:
        left_s: float | None = None
        while left_s is None or left_s > 0:
            await news.wait(left_s)
            await release_dead(project, name)
            left_s = await leases.free_in(project, name)


async def release_all_dead(project: Project, prefix: str) -> None:
    """The same for all leases whose name begins with `prefix`."""
    for lease in await leases.holders(project, prefix):
        if is_dead(lease.owner):
            await leases.release(project.store, lease)
