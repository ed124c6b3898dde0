"""The roof: `hone judge`, `judge check`, `calibrate` and `score`: their flags and exit codes.

Refuses: scoring (`judge.scoring`), trying a judge (`judge.adversarial`), holding judges against people
(`judge.calibration`), how each reads (`judge.commands.score_view`, `judge.commands.score_view`,
`judge.commands.check_view`, `judge.commands.calibration_view`).
"""
