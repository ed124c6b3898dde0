"""The roof: `hone judge`, `judge check`, `calibrate` and `score`: their flags and exit codes.

Refuses: scoring (`judge.scoring`), trying a judge (`judge.tricks`), holding judges against people
(`judge.calibration`), how each reads (`judge.score_view`, `judge.rescore_view`, `judge.check_view`,
`judge.calibration_view`).
"""
