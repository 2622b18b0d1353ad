// A word and its topics.

const MOST_SUGGESTIONS = 12;
const foldedVocabulary = [];

function drawWordView(section) {
  if (section.querySelector("input")) return;
  const input = element("input", {
    type: "search",
    id: "word",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "type a word",
    input: () => lookUp(input.value, section),
  });
  const field = element("div", { class: "field" }, element("label", { for: "word" }, "Word"), input);
  section.querySelector(".controls").replaceChildren(field);
  // Show an example before anything is typed.
  showWord(mostSharedWord(), section);
}

/** The word that is among the first ten words of most topics. */
function mostSharedWord() {
  let [best, most] = [0, -1];
  const seen = new Map();
  for (let topic = 0; topic < K; topic++) {
    for (let rank = 0; rank < 10 && lists.starts[topic] + rank < lists.starts[topic + 1]; rank++) {
      const id = lists.ids[lists.starts[topic] + rank];
      seen.set(id, (seen.get(id) ?? 0) + 1);
      if (seen.get(id) > most) [best, most] = [id, seen.get(id)];
    }
  }
  return best;
}

/** Words equal to the query, then those that start with it, then those that contain it; frequent words first. */
function suggestions(query) {
  if (!foldedVocabulary.length) for (const text of lists.vocabulary) foldedVocabulary.push(folded(text));
  const wanted = folded(query.trim());
  const found = [];
  foldedVocabulary.forEach((text, id) => {
    const at = text.indexOf(wanted);
    if (at >= 0) found.push({ id, rank: text === wanted ? 0 : at === 0 ? 1 : 2 });
  });
  found.sort((a, b) => a.rank - b.rank || lists.probability[b.id] - lists.probability[a.id]);
  return found.slice(0, MOST_SUGGESTIONS);
}

function lookUp(query, section) {
  const place = section.querySelector(".suggestions");
  place.replaceChildren();
  if (!query.trim()) return;
  const found = suggestions(query);
  const buttons = found.map(({ id }) =>
    element("button", { type: "button", click: () => showWord(id, section) }, word(lists.vocabulary[id])),
  );
  place.replaceChildren(...buttons);
  if (found.length) showWord(found[0].id, section);
  else section.querySelector(".answer").replaceChildren(element("p", {}, `No topic lists a word with “${query.trim()}”.`));
}

function showWord(id, section) {
  const found = topicsOfWord(id);
  const listed = d3.sum(found, (one) => one.own);
  const items = found.map(({ topic, given, own }) =>
    element(
      "li",
      { style: `--part: ${(100 * own).toFixed(1)}%` },
      topicButton(topic),
      element("span", { class: "share-of-word" }, `${percent(own)} of its uses · ${percent(given)} of the topic`),
    ),
  );
  const rest = 1 - listed;
  const note = rest > 0.0005 && `${percent(rest)} of its uses are in topics that do not list it.`;
  section.querySelector(".answer").replaceChildren(
    element("h3", {}, word(lists.vocabulary[id])),
    element("p", { class: "faint" }, `${percent(lists.probability[id])} of all words; topics that have it in their lists:`),
    element("ol", { class: "bars long wide" }, ...items),
    ...(note ? [element("p", { class: "faint" }, note)] : []),
  );
}
