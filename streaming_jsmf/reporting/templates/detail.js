// The panel of the selected topic: words by relevance, related topics, documents and trend.

const FIRST_WORDS = 30;
const panel = document.getElementById("topic");
let lambda = 1;
let allWords = false;

function prepareDetail() {
  onSelect((topic) => {
    if (topic === null) {
      panel.hidden = true;
      return;
    }
    const wasHidden = panel.hidden;
    panel.hidden = false;
    allWords = false;
    drawDetail(topic);
    panel.scrollTop = 0;
    // The open panel leaves less width for the views.
    if (wasHidden && shownView) refresh(views.get(shownView));
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && selected !== null) closeDetail();
  });
}

function closeDetail() {
  const last = selected;
  select(null);
  remember(`#${shownView}`);
  refresh(views.get(shownView));
  rowOf.get(last)?.querySelector("a")?.focus({ preventScroll: true });
}

function drawDetail(topic) {
  const { name, share, warnings, anchor, characteristic, frex } = topics[topic];
  const close = element("button", { type: "button", class: "close", "aria-label": "Close", click: closeDetail }, "×");
  const words = element("div", { class: "words" });
  panel.replaceChildren(
    close,
    element("h2", { id: "topic-title" }, `Topic ${topics[topic].number}: `, ...listed(name)),
    element("p", { class: "faint" }, `${percent(share)} of the corpus`),
    ...warnings.map((warning) => element("p", { class: "doubt" }, `Doubtful: ${warning}`)),
    facts(anchor, characteristic, frex),
    slider(topic, words),
    words,
    ...relatedTopics(topic),
    ...course(topic),
    ...documentsOf(topic),
  );
  drawWords(topic, words);
}

function facts(anchor, characteristic, frex) {
  const lines = [];
  if (anchor) lines.push(element("p", {}, "Anchor: ", word(anchor)));
  if (characteristic.length) {
    lines.push(element("p", {}, "Characteristic: ", ...listed(characteristic)));
  }
  if (frex.length) {
    lines.push(element("p", {}, "Exclusive (FREX): ", ...listed(frex)));
  }
  return element("div", { class: "facts-of-topic" }, ...lines);
}

function slider(topic, words) {
  const value = element("output", { for: "lambda" }, lambda.toFixed(1));
  const input = element("input", {
    type: "range",
    id: "lambda",
    min: 0,
    max: 1,
    step: 0.2,
    value: lambda,
    "aria-describedby": "lambda-meaning",
    input: () => {
      lambda = Number(input.value);
      value.textContent = lambda.toFixed(1);
      drawWords(topic, words);
    },
  });
  const meaning = "1: the most probable words. 0: words that other topics hardly use. In between: relevance.";
  return element(
    "div",
    { class: "slider" },
    element("label", { for: "lambda" }, "Order of the words, lambda "),
    value,
    input,
    element("p", { class: "faint", id: "lambda-meaning" }, meaning),
  );
}

function drawWords(topic, place) {
  const found = relevantWords(topic, lambda);
  const shown = allWords ? found : found.slice(0, FIRST_WORDS);
  const largest = Math.max(...shown.map((one) => one.overall));
  const items = shown.map(({ text, given, overall, own }) =>
    element(
      "li",
      { style: `--part: ${((100 * overall * own) / largest).toFixed(1)}%; --whole: ${((100 * overall) / largest).toFixed(1)}%` },
      word(text),
      element("span", { class: "share-of-word" }, `${percent(given)} · ${percent(own)}`),
    ),
  );
  const parts = [
    element("p", { class: "faint head-of-words" }, "gray: uses in the corpus; blue: in this topic"),
    element("p", { class: "faint head-of-words" }, "share of the topic · share of the word's uses"),
    element("ol", { class: "bars long" }, ...items),
  ];
  if (found.length > FIRST_WORDS) {
    const text = allWords ? `Show ${FIRST_WORDS} words` : `Show ${found.length.toLocaleString("en")} words`;
    const toggle = () => {
      allWords = !allWords;
      drawWords(topic, place);
      place.querySelector("button.more").focus();
    };
    parts.push(element("button", { type: "button", class: "more", click: toggle }, text));
  }
  place.replaceChildren(...parts);
}

/** The five topics that occur with it more often than by chance, or that are most similar. */
function relatedTopics(topic) {
  const values = together ? together.ratio : alike;
  const others = d3
    .range(K)
    .map((other) => ({ other, value: values[topic * K + other] }))
    .filter(({ other, value }) => other !== topic && (!together || value > 1))
    .sort((a, b) => b.value - a.value)
    .slice(0, 5);
  if (!others.length) return [];
  const items = others.map(({ other, value }) => {
    const text = together ? `${value.toFixed(1)} times as often as by chance` : `${percent(value)} similar`;
    return element("li", {}, topicButton(other), element("span", { class: "faint" }, text));
  });
  const title = together ? "In the same documents" : "Similar topics";
  return [element("h3", {}, title), element("ul", { class: "plain" }, ...items)];
}

function course(topic) {
  if (!groups || !groups.trend) return [];
  return [element("h3", {}, `By ${groups.column}`), sparkline(topic, 300, 70)];
}

const MARKED_WORDS = 100;

/** The excerpt of a document, with the words of the topic highlighted. */
function excerptOf(text, topic) {
  const words = new Set(relevantWords(topic, 0.6).slice(0, MARKED_WORDS).map((one) => folded(one.text)));
  const parts = text.split(/([\p{L}\p{N}]+)/u);
  const marked = parts.map((part, place) => (place % 2 && words.has(folded(part)) ? element("mark", {}, part) : part));
  return element("p", { class: "excerpt word" }, ...marked);
}

function documentsOf(topic) {
  if (!data.documents) return [];
  const items = data.documents.of_topic[topic].map(([name, share, ...values]) => {
    const metadata = data.documents.columns
      .map((column, place) => [column, values[place]])
      .filter(([, value]) => value !== "")
      .map(([column, value]) =>
        column === "excerpt"
          ? excerptOf(value, topic)
          : element("p", {}, element("span", { class: "faint" }, `${column} `), word(value)),
      );
    return element("li", {}, element("p", {}, word(name), " ", element("span", { class: "number" }, percent(share))), ...metadata);
  });
  return [element("h3", {}, "Documents"), element("ol", { class: "documents" }, ...items)];
}
