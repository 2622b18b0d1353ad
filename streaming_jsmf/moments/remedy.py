"""What to do about damage in a moments store."""

from __future__ import annotations

from streaming_jsmf.storage.paths import StorePath


def repair_remedy(store: StorePath) -> str:
    """The end of a message about damage that can be mended."""
    return f"mend it with streaming-jsmf scan CORPUS {store} --repair"
