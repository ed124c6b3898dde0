"""Anthropic's messages, translated to chat completions and back."""
