"""The verb ``simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streaming_jsmf.cli.verb import options_of, overwrite_option, path, verb
from streaming_jsmf.config import SimulationSettings


@verb("streaming-jsmf simulate CORPUS --documents 999 --vocabulary-size 99 --topics 9", summary=True)
@path("corpus")
@options_of(SimulationSettings)
@overwrite_option
def simulate(corpus: str, **options: Any) -> dict[str, Any]:
    """Simulate CORPUS by latent Dirichlet allocation.

    The true topics are written to CORPUS/truth.zarr. The same options give the same bytes with any scheduler and number
    of workers. Run the same command again to resume after an interruption.
    """
    from streaming_jsmf.simulation import simulate_lda

    made = simulate_lda(corpus, **options)
    numbers = {"documents": made.n_documents, "nonzeros": made.nonzeros}
    return {"corpus": corpus, **numbers, "truth": str(Path(corpus) / "truth.zarr")}
