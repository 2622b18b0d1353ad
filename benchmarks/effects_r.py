"""`effects` compared with R's `lm` of the same formulas, on simulated documents; needs Rscript (no packages but base).

    python -m benchmarks.effects_r [--documents 2000]

R gets the unbiased estimates of the shares of each document and its covariates as CSV, and computes the coefficients,
the errors of White (HC1), the knots of `bs` and the dropped terms. Printed are the largest differences, relative to the
error of each coefficient. R's package stm is not compared.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import click
import numpy as np
import pandas as pd

from benchmarks.effects_coverage import DESIGNS, simulate
from streaming_jsmf import transform
from streaming_jsmf.documents.effects import effects
from streaming_jsmf.inference.unbiased_shares import estimating

#: Formulas as they are here and in R.
FORMULAS = {
    "party + year": "party + year",
    "party * poly(year, 2)": "party * poly(year, 2)",
    "party + bs(year, df=5)": "party + bs(year, df=5)",
    "bs(year, df=4, degree=2):party": "bs(year, df=4, degree=2):party",
    "party + scale(year) + I(year**2)": "party + scale(year) + I(year^2)",
    "C(year) + year + party": "factor(year) + year + party",
    "party - 1": "party - 1",
}
SCRIPT = """
library(splines)
given <- commandArgs(trailingOnly = TRUE)
data <- read.csv(given[1])
shares <- as.matrix(data[grep("^share", names(data))])
model <- lm(as.formula(paste("shares ~", given[2])), data)
X <- model.matrix(model)[, !is.na(coef(model)[, 1]), drop = FALSE]
parts <- qr(X, LAPACK = FALSE, tol = 1e-12)
inverse <- backsolve(qr.R(parts), diag(ncol(X)))
errors <- sapply(seq_len(ncol(shares)), function(k) {
  scores <- qr.Q(parts) * residuals(model)[, k]
  sqrt(diag(nrow(X) / (nrow(X) - ncol(X)) * inverse %*% crossprod(scores) %*% t(inverse)))
})
all <- coef(model)
full <- matrix(NA, nrow(all), ncol(all))
full[!is.na(all[, 1]), ] <- errors
write.csv(cbind(all, full), given[3], row.names = FALSE)
"""


@click.command(help=__doc__)
@click.option("--documents", "n_documents", default=2000)
def main(n_documents: int) -> None:
    drawn = simulate(n_documents, *DESIGNS["balanced"], seed=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus, model = drawn.write(folder), drawn.model
        transform(model, corpus, folder / "shares.parquet", scheduler="synchronous")
        n_topics = drawn.shares.shape[1]
        weights, _ = estimating(drawn.word_topic, drawn.shares.mean(axis=0), [[k] for k in range(n_topics)])
        shares = drawn.counts @ weights / drawn.counts.sum(axis=1, keepdims=True)
        columns = {f"share{k}": shares[:, k] for k in range(n_topics)}
        pd.DataFrame({"party": drawn.party, "year": drawn.year, **columns}).to_csv(
            folder / "data.csv", index=False, float_format="%.17g"
        )
        (folder / "lm.R").write_text(SCRIPT)
        print("| formula | terms | dropped | coefficients | errors |\n|---|---|---|---|---|")
        for formula, in_r in FORMULAS.items():
            made = effects(model, folder / "shares.parquet", formula, corpus=corpus)
            out = folder / "out.csv"
            subprocess.run(["Rscript", folder / "lm.R", folder / "data.csv", in_r, out], check=True)
            found = pd.read_csv(out).to_numpy()
            estimates, errors = found[:, :n_topics].T, found[:, n_topics:].T
            dropped = np.isnan(estimates[0])
            same = [term for term, gone in zip(made.terms, dropped, strict=True) if gone] == [*made.dropped]
            kept = ~dropped
            apart = np.abs(made.coefficients - estimates)[:, kept] / errors[:, kept]
            wide = np.abs(made.errors / np.where(dropped, 1, errors) - 1)[:, kept]
            print(
                f"| `{formula}` | {len(made.terms)} | {'the same' if same else 'others'}: {dropped.sum()} | "
                f"{apart.max():.1e} | {wide.max():.1e} |"
            )


if __name__ == "__main__":
    main()
