"""The commands `hone judge`, `judge check`, `calibrate` and `score`: flags, exit codes and output.

Owns: reading arguments (`judge`, `calibrate`, `score`), and the output of each command (the modules `*_view`). Refuses:
scoring (`judge.scoring`), testing a judge (`judge.adversarial`) and comparing judges with people (`judge.calibration`).
"""
