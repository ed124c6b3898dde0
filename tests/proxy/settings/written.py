"""A hone.toml for a test, and one with models of other providers."""

from __future__ import annotations

from pathlib import Path


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hone.toml"
    path.write_text(text)
    return path


MODELS = """
[[proxy.models]]
name = "gpt-today"
model = "openai/gpt-5"
api_key = "sk-very-secret"
params = { reasoning_effort = "low", vertex_token = "also-secret" }

[aliases.helpdesk]
fallback = "gpt-today"
"""
