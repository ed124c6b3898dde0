"""Stored prompts: every chain of differences resolves, and the hashes of its blocks are those of its ids.

Owns: putting prompts together and hashing them anew. Refuses: how they are packed
(`recorder.content.tokens`).

Calls are walked in the order of their ids, which is that of their times, so a prompt's parent was mostly just seen.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

from sqlalchemy import Row, select

from recorder.checking.look import Look, Violation, Violations
from recorder.content import tokens
from recorder.errors import CorruptRecord
from recorder.lru import Lru
from recorder.store.schema import calls, choices, projects

_KEPT: Final = 256  # prompts: 32 MiB where each is of 32k ids
_DAMAGED: Final = "restore the store from a backup, or delete the run with `hone delete`: its tokens are not exact"
_COLUMNS: Final = (
    calls.c.id,
    calls.c.project_id,
    calls.c.parent_call_id,
    calls.c.parent_choice,
    calls.c.prompt_shared,
    calls.c.prompt_delta,
    calls.c.prompt_len,
    calls.c.prompt_hashes,
)


async def prompts_resolve_and_their_hashes_agree(look: Look) -> Violations:
    """Every prompt can be put together from its differences, and its hashes are those of its ids."""
    prompts = _Prompts(look, {row.id: row.node_key for row in await look.rows(select(projects))})
    async for page in look.pages(select(*_COLUMNS).where(calls.c.prompt_len.is_not(None)), calls.c.id):
        sampled = await prompts.choices_of([row.id for row in page])
        for row in page:
            try:
                await prompts.compare(row, sampled.get(row.id, {}))
            except CorruptRecord as e:
                yield Violation("call", row.id, str(e), _DAMAGED)


class _Prompts:
    """Prompts put together, the newest of them remembered."""

    def __init__(self, look: Look, keys: dict[str, bytes]) -> None:
        self._look = look
        self._keys = keys
        self._known: Lru[str, array[int]] = Lru(_KEPT)

    async def choices_of(self, call_ids: list[str]) -> dict[str, dict[int, Row[Any]]]:
        query = select(choices.c.call_id, choices.c["index"].label("choice"), choices.c.token_ids, choices.c.hashes)
        found: dict[str, dict[int, Row[Any]]] = {}
        for row in await self._look.rows(query.where(choices.c.call_id.in_(call_ids))):
            found.setdefault(row.call_id, {})[row.choice] = row
        return found

    async def compare(self, row: Row[Any], sampled: dict[int, Row[Any]]) -> None:
        """Raises CorruptRecord where the prompt does not resolve, or a hash is another's."""
        prompt = tokens.pack_ids(await self._prompt(row))
        seed = tokens.chain_seed(self._keys[row.project_id])
        hashes = tokens.block_hashes(prompt, seed)
        if hashes[(row.prompt_shared or 0) // tokens.BLOCK * tokens.HASH_BYTES :] != (row.prompt_hashes or b""):
            raise CorruptRecord("the hashes of its prompt are not those of its ids")
        for choice in sampled.values():
            if choice.token_ids and tokens.extend_hashes(prompt, hashes, choice.token_ids, seed) != choice.hashes:
                raise CorruptRecord(f"the hashes of its choice {choice.choice} are not those of its ids")

    async def _prompt(self, row: Row[Any]) -> array[int]:
        chain = [row]
        while chain[-1].prompt_shared and self._known.get(chain[-1].parent_call_id) is None:
            chain.append(await self._parent(chain[-1]))
            if chain[-1].id in {one.id for one in chain[:-1]}:
                raise CorruptRecord("its prompt is a difference to itself")
        for one in reversed(chain):
            self._known.put(one.id, await self._joined(one))
        return self._known.get(row.id) or array("i")

    async def _joined(self, row: Row[Any]) -> array[int]:
        above = None
        if row.prompt_shared:
            sampled = (await self.choices_of([row.parent_call_id])).get(row.parent_call_id, {})
            choice = sampled.get(row.parent_choice or 0)
            above = (self._known.get(row.parent_call_id) or array("i"))[:]
            above.extend(tokens.unpack_ids(choice.token_ids if choice is not None and choice.token_ids else b""))
        return tokens.join(above, row.prompt_shared or 0, row.prompt_delta or b"", row.prompt_len or 0)

    async def _parent(self, row: Row[Any]) -> Row[Any]:
        found = await self._look.rows(select(*_COLUMNS).where(calls.c.id == row.parent_call_id))
        if not found:
            raise CorruptRecord(f"it shares ids with call {row.parent_call_id}, which is gone")
        return found[0]
