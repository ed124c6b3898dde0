"""Token ids and logprobs as bytes, and comparing prefixes without reading them.

Owns: packing, the chained hashes of whole blocks, and assembling a sequence from its parent's. Refuses: storage.

A sequence is cut into blocks of `BLOCK` ids. Each whole block has an 8-byte hash of it and all before it, so two
sequences are equal up to the last block with equal hashes. A call stores only the hashes and ids after that.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

from recorder.errors import CorruptRecord

BLOCK = 128  # vLLM's block size on a CPU; one hash per block is 1/64 of the ids' size
HASH_BYTES = 8
ID_BYTES = 4

_T = TypeVar("_T", int, float)
_SWAP = sys.byteorder == "big"


def pack_ids(ids: Sequence[int]) -> bytes:
    """Pack token ids as little-endian int32. Raises OverflowError or TypeError for a value that is not an id."""
    return _pack(array("i", ids))


def pack_heard_ids(ids: Sequence[int]) -> bytes | None:
    """Pack an engine's token ids as `pack_ids` does; None if one is not an integer or is negative."""
    try:
        packed = pack_ids(ids)
    except (TypeError, ValueError, OverflowError):
        return None
    # the highest byte of each holds its sign: cheaper than testing each number
    return packed if packed[ID_BYTES - 1 :: ID_BYTES].isascii() else None


def unpack_ids(packed: bytes) -> array[int]:
    """Return the ids of `pack_ids`, as an array of typecode i."""
    return _unpack(array("i"), packed, "token ids")


def pack_logprobs(logprobs: Sequence[float]) -> bytes:
    """Pack logprobs as little-endian float32."""
    return _pack(array("f", logprobs))


def unpack_logprobs(packed: bytes) -> array[float]:
    """Return the logprobs of `pack_logprobs`, as an array of typecode f."""
    return _unpack(array("f"), packed, "logprobs")


def chain_seed(key: bytes) -> bytes:
    """Return the value that the hash of a project's first blocks is chained to."""
    return blake2b(b"", digest_size=HASH_BYTES, key=key, person=b"tokens").digest()


def block_hashes(ids: bytes, carry: bytes = b"") -> bytes:
    """Return the chained hashes of the whole blocks of packed `ids`, which begin at the start of a block.

    `carry` is the hash of the block before (`chain_seed` for the first). An incomplete last block has no hash.
    """
    size = BLOCK * ID_BYTES
    hashes = []
    for start in range(0, len(ids) - size + 1, size):
        carry = blake2b(ids[start : start + size], digest_size=HASH_BYTES, key=carry).digest()
        hashes.append(carry)
    return b"".join(hashes)


def extend_hashes(prompt: bytes, prompt_hashes: bytes, sampled: bytes, seed: bytes) -> bytes:
    """Return the hashes of the whole blocks of prompt + sampled that end in the sampled ids. All ids are packed."""
    border = len(prompt_hashes) // HASH_BYTES * BLOCK * ID_BYTES
    return block_hashes(prompt[border:] + sampled, prompt_hashes[-HASH_BYTES:] or seed)


def shared_prefix(a: bytes, b: bytes) -> int:
    """Return how many leading ids two sequences share at least, by their hashes: a multiple of `BLOCK`.

    The hashes are chained, so one equal pair proves that all earlier blocks are equal: a binary search finds the last.
    """
    low, high = 0, min(len(a), len(b)) // HASH_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        span = slice((middle - 1) * HASH_BYTES, middle * HASH_BYTES)
        low, high = (middle, high) if a[span] == b[span] else (low, middle - 1)
    return low * BLOCK


def join_ids(parent: array[int] | None, shared: int, delta: bytes, length: int) -> array[int]:
    """Return a sequence: its parent's first `shared` ids, then its own `delta` (packed)."""
    if shared > len(parent or ()):
        raise CorruptRecord(f"a call shares {shared} ids with a parent that has {len(parent or ())}")
    ids = parent[:shared] if parent is not None else array("i")
    ids.extend(unpack_ids(delta))
    if len(ids) != length:
        raise CorruptRecord(f"a prompt of {length} ids was assembled from {shared} shared ids and has {len(ids)} ids")
    return ids


def _pack(values: array[_T]) -> bytes:
    if _SWAP:
        values.byteswap()
    return values.tobytes()


def _unpack(values: array[_T], packed: bytes, what: str) -> array[_T]:
    if len(packed) % ID_BYTES:
        raise CorruptRecord(f"packed {what} of {len(packed)} bytes: not a multiple of {ID_BYTES}")
    values.frombytes(packed)
    if _SWAP:
        values.byteswap()
    return values
