"""Example agents for Hone, each with a `hone.toml`. The wheel contains the helpdesk, for `hone demo`."""
