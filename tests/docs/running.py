"""How the blocks of README and docs/ are run, and why some are not.

Owns: the tables. Refuses: running (tests/docs/test_blocks.py).
"""

from __future__ import annotations

from typing import Final

# Commands that are run in an empty folder with a store that holds a few runs.
HARMLESS: Final = frozenset({
    "close", "config", "datasets add", "datasets create", "datasets delete", "datasets list", "datasets remove",
    "datasets show", "db check", "db upgrade", "export", "groups", "keys create", "keys list", "keys revoke",
    "keys rotate", "ledger", "notify list", "show", "status", "trajectories", "versions",
})  # fmt: skip
# What stands for something of the user's in a command, and what is there instead.
STANDS_FOR: Final = {
    "ID": "order-4821", "GROUP": "orders", "RUN": "order-4821", "NAME": "agents", "KEY": "agents",
    "VERSION": "helpdesk@0",
}  # fmt: skip
# Commands that are only read by the command line, and why.
ONLY_READ: Final = {
    "up": "runs an engine; tests/proxy/supervision/test_up.py and tests/e2e do",
    "adapters sync": "goes on until it is stopped; tests/recorder/commands/test_adapters.py",
    "serve": "goes on until it is stopped; tests/proxy/supervision/test_serve.py",
    "engine": "runs vLLM; tests/e2e",
    "judge": "asks a judge model until it is stopped; tests/judge",
    "calibrate": "asks a judge model; tests/judge",
    "judge check": "asks a judge model; tests/judge",
    "learn": "trains until it is stopped; tests/trainer",
    "train": "trains; tests/trainer and tests/e2e",
    "sft": "trains; tests/trainer/runtime/test_sft.py",
    "dpo": "trains; tests/trainer/runtime/test_dpo.py",
    "eval": "attempts scenarios; tests/trainer/evaluation",
    "review": "asks a person at a terminal; tests/recorder/commands/test_review.py",
    "report": "takes a campaign; tests/trainer/test_reporting.py",
    "score": "asks a judge model; tests/judge",
    "scenarios": "takes files of the user's; tests/trainer",
    "scenarios from-traffic": "asks before it writes; tests/trainer/campaign",
    "scenarios generate": "asks a model; tests/trainer/scenario_generation/test_program.py",
    "doctor": "asks judge and learner in processes of their own; tests/proxy/doctor",
    "promote": "takes a version that was trained; tests/proxy/commands",
    "rollback": "takes two versions that were trained; tests/proxy/commands",
    "notify test": "sends a message; tests/proxy/notifications",
    "top": "goes on until it is stopped; tests/proxy/commands/test_watching.py",
    "delete": "asks before it deletes; tests/recorder/commands",
    "plan": "computes for seconds; tests/trainer/memory",
    "init": "writes a hone.toml from what it finds on the machine; tests/proxy/commands",
    "demo": "runs an engine and trains; tests/install",
    "db copy": "takes a second database; tests/recorder/maintenance/transfer",
    "db backup": "writes as much again as the store; tests/recorder/maintenance/transfer",
}
# Other programs in shell blocks, and why they are not run.
OTHERS: Final = {
    "git": "needs the network", "pip": "needs the network", "pipx": "needs the network", "uv": "needs the network",
    "uvx": "needs the network", "apt": "needs root", "apt-get": "needs root", "sudo": "needs root",
    "make": "sets the environment up; the targets exist (test_texts.py)",
    "vllm": "needs a model and minutes; tests/e2e starts one by Hone's own command line",
    "your-agent": "is the user's", "my-agent": "is the user's",
    "python": "sets up, or runs for minutes; the modules exist", "python3": "sets up, or runs for minutes",
    "docker": "needs a container engine", "podman": "needs a container engine", "kubectl": "needs a cluster",
    "kustomize": "needs a cluster", "helm": "needs a cluster", "systemctl": "needs root", "journalctl": "needs root",
    "install": "needs root", "useradd": "needs root", "systemd-analyze": "tests of deploy/ run it",
    "promtool": "tests of deploy/ run it", "psql": "needs a database", "createdb": "needs a database",
    "createuser": "needs a database", "pg_dump": "needs a database", "pg_restore": "needs a database",
    "sqlite3": "is not everywhere", "curl": "is not everywhere", "openssl": "is not everywhere",
    "cd": "a shell's own", "export": "a shell's own", "source": "a shell's own", ".": "a shell's own",
    "cp": "copies what is not here", "mv": "moves what is not here", "mkdir": "makes what nobody needs here",
    "chmod": "changes what is not here", "sed": "changes what a reader would set",
    "rm": "removes what is not here", "cat": "shows what is not here",
    "echo": "only prints", "ls": "only prints", "env": "only prints", "nvidia-smi": "needs a GPU",
    "gh": "needs a forge", "torchrun": "needs several GPUs; tests/trainer/ranks", "srun": "needs a cluster",
    "twine": "needs a registry", "watch": "goes on until it is stopped", "ssh": "needs another machine",
    "rsync": "needs another machine", "scp": "needs another machine", "printf": "only prints", "test": "a shell's own",
}  # fmt: skip
# Languages of blocks that are not for these tests, and why.
NOT_FOR_HERE: Final = {
    "text": "is shown, not run", "console": "is shown, not run", "http": "is shown, not run", "diff": "is shown",
    "yaml": "tests of deploy/ check it", "dockerfile": "tests of deploy/ check it", "ini": "tests of deploy/ check it",
    "nginx": "needs that server", "caddyfile": "needs that server", "sql": "needs a database",
    "promql": "needs Prometheus",
}  # fmt: skip
# Blocks that could be run by their language and are not: (page, its first line) → why.
LEFT_OUT: Final[dict[tuple[str, str], str]] = {}
