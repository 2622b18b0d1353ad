"""The arrays of a model store, registered once: dimensions, the papers' symbol, meaning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """One array of a model store.

    Attributes
    ----------
    dimensions
        Names, as xarray shows them.
    symbol
        Of the papers; empty where they have none.
    meaning
        In a line.
    """

    dimensions: tuple[str, ...]
    symbol: str
    meaning: str


#: What polish adds to the model of any engine.
_POLISHED: dict[str, Variable] = {
    "topic_topic_of_documents": Variable(
        ("topic", "topic_"), "A", "joint topic probabilities, by the topic shares of the documents"
    ),
}

#: Of models of LR-JSMF; ``alpha`` is there once they are polished.
MODEL_VARIABLES: dict[str, Variable] = {
    "word": Variable(("word",), "", "vocabulary"),
    "topic": Variable(("topic",), "", "topic number, in the order in which anchors were chosen"),
    "topic_": Variable(("topic_",), "", "topic number, second axis of topic_topic"),
    "rank": Variable(("rank",), "", "place in a word list, from 0"),
    "anchors": Variable(("topic",), "S", "word id of the anchor of each topic"),
    "pivots": Variable(("topic",), "", "distance of each anchor from the span of those before it"),
    "cliques": Variable(("clique", "topic_"), "", "word ids of all cliques found, the lightest first"),
    "clique_weight": Variable(("clique",), "", "total co-occurrence of the words of each clique"),
    "word_topic": Variable(("word", "topic"), "B", "p(word | topic); columns sum to 1"),
    "topic_given_word": Variable(("word", "topic"), "B-breve", "p(topic | word); rows sum to 1, or 0"),
    "topic_topic": Variable(("topic", "topic_"), "A", "joint topic probabilities, as recovered"),
    "topic_probability": Variable(("topic",), "", "share of each topic in the corpus; sums to 1"),
    "alpha": Variable(("topic",), "alpha", "Dirichlet prior of the topic shares of documents"),
    "eigenvalues": Variable(("topic",), "D", "leading algebraic eigenvalues of C"),
    "rectified": Variable(("word", "component"), "Y", "rectified co-occurrence is Y Y'"),
    "row_sum": Variable(("word",), "u", "row sums of C before rectification, exact"),
    "rectified_row_sum": Variable(("word",), "d", "row sums of Y Y'"),
    "term_count": Variable(("word",), "", "tokens in the corpus"),
    "document_frequency": Variable(("word",), "", "documents that hold the word"),
    "prominent_words": Variable(("topic", "rank"), "", "most probable word ids of each topic"),
    "characteristic_words": Variable(
        ("topic", "rank"), "", "word ids that co-occur most with the anchor of each topic"
    ),
    "label_words": Variable(
        ("topic", "label"), "", "word ids both prominent and characteristic, of one topic only; -1 for none"
    ),
    **_POLISHED,
}

#: Of models of the tensor engine; those it shares with LR-JSMF have the same meaning.
STOD_VARIABLES: dict[str, Variable] = {
    "word": MODEL_VARIABLES["word"],
    "topic": Variable(("topic",), "", "topic number, by falling probability"),
    "rank": MODEL_VARIABLES["rank"],
    "component": Variable(("component",), "", "number of an eigenpair of M2, by falling eigenvalue"),
    "word_topic": Variable(("word", "topic"), "phi", "p(word | topic); columns sum to 1"),
    "topic_probability": MODEL_VARIABLES["topic_probability"],
    "topic_": MODEL_VARIABLES["topic_"],
    "alpha": MODEL_VARIABLES["alpha"],
    "lambda": Variable(
        ("topic",),
        "lambda*",
        "strength of the topic's component; 1 / lambda*^2 is its share in exact moments",
    ),
    "duplicate_of": Variable(("topic",), "", "a larger topic with nearly the same words, or -1"),
    "eigenvalues": Variable(("component",), "sigma", "leading algebraic eigenvalues of M2"),
    "eigengap": Variable(
        ("component",), "", "each eigenvalue over the next; infinite where that is not positive"
    ),
    "ritz_residual": Variable(
        ("component",), "", "||M2 v - sigma v|| / sigma: how far the basis is from holding v"
    ),
    "word_mean": Variable(("word",), "M1", "mean share of the word in documents of three tokens or more"),
    "term_count": MODEL_VARIABLES["term_count"],
    "document_frequency": MODEL_VARIABLES["document_frequency"],
    "prominent_words": Variable(
        ("topic", "rank"), "", "word ids of each topic, by what of p(word | topic) is above the noise"
    ),
    "characteristic_words": Variable(
        ("topic", "rank"), "", "word ids that co-occur most with the first prominent word of each topic"
    ),
    "label_words": MODEL_VARIABLES["label_words"],
    **_POLISHED,
}
