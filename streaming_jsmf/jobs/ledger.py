"""Former names, until all callers use ``jobs.checkpoints``."""

from streaming_jsmf.jobs.checkpoints import Checkpoints as Ledger
from streaming_jsmf.jobs.checkpoints import PartialResult as Partial
from streaming_jsmf.jobs.checkpoints import add_scalars, added, fold_keys, key_of

__all__ = ["Ledger", "Partial", "add_scalars", "added", "fold_keys", "key_of"]
