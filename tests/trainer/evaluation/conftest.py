"""What the tests of evaluations share with those of whole campaigns: a ring around a store, and the user's folder."""

from __future__ import annotations

from tests.trainer.campaign.conftest import data, ring, ring_of, script, told, user

__all__ = ["data", "ring", "ring_of", "script", "told", "user"]
