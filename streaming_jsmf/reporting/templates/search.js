// Texts as they are compared: case and accents do not count.

function folded(text) {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
}

const textOfTopic = topics.map((topic) =>
  folded([topic.number, ...topic.name, topic.anchor ?? "", ...topic.words, ...topic.characteristic].join("\n")),
);

/** Whether a topic has all parts of a query in its name or among its listed words. */
function isFound(topic, parts) {
  return parts.every((part) => textOfTopic[topic].includes(part));
}
