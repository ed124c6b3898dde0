"""Learning from live traffic on this machine: `make live`. README.md in this folder describes the parts."""
