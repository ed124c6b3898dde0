"""The commands of the proxy: `hone up`, `serve`, `engine`, `status`, `versions`, `promote`, `rollback`, `config` …

Owns: flags and printing. Refuses: the work behind them (`proxy.supervision`, `proxy.doctor`, `recorder`).
"""
