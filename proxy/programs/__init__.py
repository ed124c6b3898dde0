"""What a proxy knows of the `hone up` that supervises it: its programs, their logs, and what it may start.

Both sides share the data folder: run.json (`run_file`), `logs/` (`log_files`) and a request to start (`start_request`).
`service` answers pages and routes. Refuses: running programs (`proxy.supervision`).
"""
