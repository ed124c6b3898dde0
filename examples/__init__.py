"""Agents that Hone is shown with, each with a `hone.toml`. The wheel carries the helpdesk, for `hone demo`."""
