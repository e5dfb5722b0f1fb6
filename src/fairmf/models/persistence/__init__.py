"""Models and checkpoints as files (the files themselves: fairmf.files).

`saving` and `loading` are a model in a file, `checkpoints` a folder of unfinished fits. docs/persistence.md describes
every byte.
"""

from fairmf.models.persistence.loading import load_model
from fairmf.models.persistence.saving import save_model

__all__ = ["load_model", "save_model"]
