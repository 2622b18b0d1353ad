"""The arrays of a model: dimensions, symbols in the papers and meaning."""

from __future__ import annotations

from streaming_jsmf.storage.arrays import Variable


def _variable(dimensions: str, symbol: str, meaning: str) -> Variable:
    return Variable(tuple(dimensions.split()), meaning, symbol)


# fmt: off
#: Arrays of every engine; ``alpha`` of LR-JSMF and ``topic_topic_of_documents`` exist only after polish.
_COMMON = {
    "word": _variable("word", "", "vocabulary"),
    "shown_word": _variable("word", "", "the most frequent form of each word, if words are stems"),
    "topic_": _variable("topic_", "", "topic number, second axis of topic_topic"),
    "rank": _variable("rank", "", "place in a word list, from 0"),
    "topic_probability": _variable("topic", "", "share of each topic in the corpus; sums to 1"),
    "alpha": _variable("topic", "alpha", "Dirichlet prior of the topic shares of documents"),
    "term_count": _variable("word", "", "tokens in the corpus"),
    "document_frequency": _variable("word", "", "documents that hold the word"),
    "label_words": _variable("topic label", "",
        "word ids both prominent and characteristic, of one topic only; -1 for none"),
    "origin_words": _variable("topic rank", "", "after updates: prominent word ids of each topic when it was found"),
    "origin_probability": _variable("topic rank", "", "p(word | topic) of the origin words at that time"),
    "topic_topic_of_documents": _variable("topic topic_", "A",
        "joint topic probabilities, by the topic shares of the documents"),
}

#: Arrays of LR-JSMF models.
MODEL_VARIABLES: dict[str, Variable] = {
    **_COMMON,
    "topic": _variable("topic", "", "topic number, in the order in which anchors were chosen"),
    "anchors": _variable("topic", "S", "word id of the anchor of each topic"),
    "pivots": _variable("topic", "", "distance of each anchor from the span of those before it"),
    "cliques": _variable("clique topic_", "", "word ids of all cliques found, the lightest first"),
    "clique_weight": _variable("clique", "", "total co-occurrence of the words of each clique"),
    "word_topic": _variable("word topic", "B", "p(word | topic); columns sum to 1"),
    "topic_given_word": _variable("word topic", "B-breve", "p(topic | word); rows sum to 1, or 0"),
    "topic_topic": _variable("topic topic_", "A", "joint topic probabilities, as recovered"),
    "eigenvalues": _variable("topic", "D", "leading algebraic eigenvalues of C"),
    "rectified": _variable("word component", "Y", "rectified co-occurrence is Y Y'"),
    "row_sum": _variable("word", "u", "row sums of C before rectification, exact"),
    "rectified_row_sum": _variable("word", "d", "row sums of Y Y'"),
    "prominent_words": _variable("topic rank", "", "most probable word ids of each topic"),
    "characteristic_words": _variable("topic rank", "", "word ids that co-occur most with the anchor of each topic"),
}

#: Arrays of models of the tensor engine.
STOD_VARIABLES: dict[str, Variable] = {
    **_COMMON,
    "topic": _variable("topic", "", "topic number, by falling probability"),
    "component": _variable("component", "", "number of an eigenpair of M2, by falling eigenvalue"),
    "word_topic": _variable("word topic", "phi", "p(word | topic); columns sum to 1"),
    "lambda": _variable("topic", "lambda*",
        "strength of the topic's component; 1 / lambda*^2 is its share in exact moments"),
    "duplicate_of": _variable("topic", "", "a larger topic with nearly the same words, or -1"),
    "eigenvalues": _variable("component", "sigma", "leading algebraic eigenvalues of M2"),
    "eigengap": _variable("component", "", "each eigenvalue over the next; infinite where that is not positive"),
    "ritz_residual": _variable("component", "", "||M2 v - sigma v|| / sigma: how far the basis is from holding v"),
    "word_mean": _variable("word", "M1", "mean share of the word in documents of three tokens or more"),
    "prominent_words": _variable("topic rank", "",
        "word ids of each topic, by what of p(word | topic) is above the noise"),
    "characteristic_words": _variable("topic rank", "",
        "word ids that co-occur most with the first prominent word of each topic"),
}
# fmt: on
