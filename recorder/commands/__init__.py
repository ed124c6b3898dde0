"""The recorder's commands, which read and maintain the record: `hone show`, `groups`, `review`, `export`, `db`, …

Refuses: queries. Commands of all packages print with `recorder.base.terminal` and open the store with `context.run`.
"""
