// Search ignores case and accents.

function folded(text) {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
}

const textOfTopic = topics.map((topic) =>
  folded([topic.number, ...topic.name, topic.anchor ?? "", ...topic.words, ...topic.characteristic, ...topic.frex].join("\n")),
);

/** Whether the name or the listed words of a topic contain all parts of a query. */
function isFound(topic, parts) {
  return parts.every((part) => textOfTopic[topic].includes(part));
}
