// The map of documents: points colored by topic or by a column, with panning, zooming and navigation by arrow keys.

const documents = data.scatter && {
  ...data.scatter,
  x: unpacked(data.scatter.x),
  y: unpacked(data.scatter.y),
  share: probabilities(data.scatter.share),
};
const MOST_COLORS = 12;
const documentMap = { by: "", shown: null };

function drawDocuments(section) {
  if (!documents) return;
  const [place, width] = [section.querySelector(".chart"), section.clientWidth];
  const height = Math.round(Math.min(Math.max(width * 0.6, 380), Math.max(innerHeight - 260, 380)));
  const scale = Math.min((width - 48) / (d3.max(documents.x) || 1), (height - 48) / (d3.max(documents.y) || 1));
  const at = (values, length) => (one) => length / 2 + (values[one] - d3.max(values) / 2) * scale;
  const [x, y] = [at(documents.x, width), at(documents.y, height)];
  const svg = mapDrawing(width, height, "Map of documents. Arrow keys move between documents, Enter selects the topic.");
  const move = (event, one) => {
    if (event.key === "Enter" || event.key === " ") select(documents.topic[one]);
    else if (!arrows[event.key]) return;
    event.preventDefault();
    focusNearest(event.key, one, points, x, y);
  };
  const points = svg
    .append("g")
    .attr("class", "documents-drawn")
    .selectAll("circle")
    .data(d3.range(documents.rows.length))
    .join("circle")
    .attr("role", "button")
    .attr("tabindex", (one) => (one ? -1 : 0))
    .attr("aria-label", (one) => linesOfDocument(one).slice(0, 2).join(", "))
    .on("pointerenter", (event, one) => showTooltip(linesOfDocument(one), event.clientX, event.clientY))
    .on("pointerleave blur", hideTooltip)
    .on("focus", (event, one) => showTooltipBeside(event.currentTarget, linesOfDocument(one)))
    .on("click", (_, one) => select(documents.topic[one]))
    .on("keydown", move);
  const labels = svg.append("g").attr("class", "labels").attr("aria-hidden", "true");
  const show = (transform) => {
    points
      .attr("cx", (one) => transform.applyX(x(one)))
      .attr("cy", (one) => transform.applyY(y(one)))
      .attr("r", 3.2 * Math.sqrt(transform.k));
    labelDocuments(labels, { width, height }, (one) => transform.applyX(x(one)), (one) => transform.applyY(y(one)));
  };
  const zoom = mapZoom(svg, width, height, show);
  place.replaceChildren(mapButtons(svg, zoom), svg.node());
  documentMap.shown = { section, points };
  show(d3.zoomIdentity);
  colorDocuments();
}

/** Columns with few values, or with numbers or dates, and what colors each value. */
function documentColors() {
  const found = new Map();
  documents.columns.forEach((column, place) => {
    const values = documents.rows.map((row) => row[place + 1]);
    const known = [...new Set(values)].filter((value) => value !== "").sort(d3.ascending);
    const numbers = values.map((value) => (value === "" ? NaN : Number(value) || Date.parse(value) || Number(value)));
    if (known.length > 1 && known.length <= MOST_COLORS) {
      found.set(column, { color: (one) => (values[one] === "" ? null : groupColor(known.indexOf(values[one]))), legend: known.map((text, at) => [groupColor(at), text]) });
    } else if (known.length > 1 && values.every((value, one) => value === "" || !Number.isNaN(numbers[one]))) {
      const [low, high] = [d3.minIndex(numbers), d3.maxIndex(numbers)];
      const shade = d3.scaleLinear([numbers[low], numbers[high]], [color("cold"), color("warm")]);
      const legend = [low, high].map((one) => [shade(numbers[one]), values[one]]);
      found.set(column, { color: (one) => (values[one] === "" ? null : shade(numbers[one])), legend });
    }
  });
  return found;
}

function colorDocuments() {
  const { section, points } = documentMap.shown;
  const [columns, ofTopics] = [documentColors(), topicColors()];
  const chosen = columns.get(documentMap.by);
  points.style("--group", (one) => (chosen ? chosen.color(one) : ofTopics[documents.topic[one]]));
  points.classed("other", (one) => selected !== null && documents.topic[one] !== selected);
  const choices = ["", ...columns.keys()].map((name) => element("option", { value: name, selected: name === documentMap.by }, name || "topic"));
  const input = element("select", { id: "document-color", change: () => ((documentMap.by = input.value), colorDocuments()) }, ...choices);
  const field = element("div", { class: "field" }, element("label", { for: "document-color" }, "Color"), input);
  const key = ([fill, text]) => element("span", {}, element("span", { class: "swatch", style: `background: ${fill}` }), word(text));
  const focused = document.activeElement?.id === input.id;
  section.querySelector(".controls").replaceChildren(...(columns.size ? [field] : []));
  section.querySelector(".legend").replaceChildren(...(chosen ? chosen.legend.map(key) : ["Topics of a group have the same color."]));
  if (focused) input.focus();
}

function linesOfDocument(one) {
  const [name, ...values] = documents.rows[one];
  const topic = documents.topic[one];
  const metadata = documents.columns.map((column, place) => (column === "excerpt" ? values[place] : values[place] && `${column}: ${values[place]}`));
  return [name, `Topic ${topicTitle(topic, 40)}: ${percent(documents.share[one])}`, ...metadata.filter(Boolean)];
}

/** The names of topics at the medians of their documents, of the most documents first, where they do not overlap. */
function labelDocuments(labels, size, x, y) {
  const taken = [];
  const shown = [];
  for (const [topic, own] of d3.sort(d3.group(d3.range(documents.rows.length), (one) => documents.topic[one]), ([, own]) => -own.length)) {
    const text = topicTitle(topic, size.width < 560 ? 12 : 24);
    const [middle, top, half] = [d3.median(own, x), d3.median(own, y) - 8, widthOf(text) / 2 + 3];
    const box = { text, left: middle - half, right: middle + half, top, bottom: top + 16 };
    if (!isInside(box, size) || taken.some((other) => boxesTouch(box, other))) continue;
    taken.push(box);
    shown.push({ topic, ...box });
  }
  writeLabels(labels, shown);
}

onSelect(() => {
  if (documentMap.shown) colorDocuments();
});
