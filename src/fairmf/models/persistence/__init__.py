"""Files that last: models and checkpoints as safetensors files, checked before anything in them is believed.

`container` is the file, `saving` and `loading` a model in it, `checkpoints` a folder of unfinished fits. Nothing here
unpickles, and nothing in a file names code to run (docs/persistence.md describes every byte).
"""

from fairmf.models.persistence.loading import load_model
from fairmf.models.persistence.saving import save_model

__all__ = ["load_model", "save_model"]
