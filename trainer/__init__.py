"""Training: scored groups become token rows, a loss, an optimizer step and a new version.

Campaigns (`hone train`) and the learner (`hone learn`) drive it. Refuses: judging and serving. Imports only `recorder`
and settings.
"""

import logging

# bitsandbytes warns where it is imported (`trainer.quantization.nf4`) that it lacks a kernel that nothing here uses.
logging.getLogger("bitsandbytes.backends").setLevel(logging.ERROR)
