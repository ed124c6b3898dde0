"""URLs are told without the secrets in them, and otherwise as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.engine import make_url

from recorder.base.urls import mask_parameters, mask_store_url


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("postgresql+asyncpg://me:hush@db/hone", "postgresql+asyncpg://me:***@db/hone"),
        (
            "postgresql+asyncpg:///hone?host=/run/pg&user=hush&password=hush",
            "postgresql+asyncpg:///hone?host=%2Frun%2Fpg&password=***&user=***",
        ),
        ("sqlite+aiosqlite:////data/hone.db", "sqlite+aiosqlite:////data/hone.db"),
    ],
)
def test_a_stores_password_is_hidden_wherever_it_stands(said: str, told: str) -> None:
    assert mask_store_url(make_url(said)) == told


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("https://h/mcp?page=2&apiKey=hush#top", "https://h/mcp?page=2&apiKey=***#top"),
        ("https://h/?ToKeN=hush;X-Amz-Signature=hush", "https://h/?ToKeN=***;X-Amz-Signature=***"),
        ("no answer from 'https://h/?pass%77ord=hush': 404", "no answer from 'https://h/?pass%77ord=***': 404"),
        ("https://h/?max_tokens=5&tokenizer=a&author=b", "https://h/?max_tokens=5&tokenizer=a&author=b"),
    ],
)
def test_secret_parameters_are_masked_in_any_text(said: str, told: str) -> None:
    assert mask_parameters(said) == told


@given(st.text(alphabet=st.characters(exclude_characters="?&;")))
def test_a_text_without_parameters_is_told_as_it_is(text: str) -> None:
    assert mask_parameters(text) == text
