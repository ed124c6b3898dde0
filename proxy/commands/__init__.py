"""The roof: `hone up`, `serve`, `engine`, `status`, `versions`, `promote`, `rollback`, `config`. Flags and printing.

Refuses: the work behind them.
"""
