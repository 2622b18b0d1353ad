// The map of the topics: circles with labels, panning, zooming and navigation by arrow keys.

const MAP_MARGIN = 0.04;
let mapShown = null;

function drawMap(section) {
  const place = section.querySelector(".chart");
  const focused = mapShown !== null && mapShown.svg.node().contains(document.activeElement);
  const width = place.clientWidth;
  const height = Math.round(Math.min(Math.max(width * 0.7, 400), Math.max(innerHeight - 220, 400)));
  const fit = mapFit(width, height);
  const colors = topicColors();
  const svg = mapDrawing(width, height, "Map of the topics. Arrow keys move between topics, Enter selects.");
  const circles = svg
    .append("g")
    .selectAll("circle")
    .data(d3.range(K).sort((a, b) => data.map.r[b] - data.map.r[a]))
    .join("circle")
    .attr("role", "button")
    .attr("tabindex", -1)
    .attr("aria-label", (topic) => `Topic ${topicTitle(topic, 60)}, ${percent(topics[topic].share)}`)
    .style("--group", (topic) => colors[topic])
    .classed("doubtful", (topic) => topics[topic].warnings.length > 0)
    .on("pointerenter pointermove", (event, topic) => showTooltip(linesOf(topic), event.clientX, event.clientY))
    .on("pointerleave blur", hideTooltip)
    .on("focus", (event, topic) => showTooltipBeside(event.currentTarget, linesOf(topic)))
    .on("click", (_, topic) => select(topic))
    .on("keydown", moveFocus);
  const labels = svg.append("g").attr("class", "labels").attr("aria-hidden", "true");
  mapShown = { svg, circles, labels, fit, transform: d3.zoomIdentity };
  const zoom = mapZoom(svg, width, height, (transform) => {
    mapShown.transform = transform;
    placeMap();
  });
  place.replaceChildren(mapButtons(svg, zoom), svg.node());
  const first = circles.filter((topic) => topic === (selected ?? 0)).attr("tabindex", 0);
  placeMap();
  // The map is drawn again when the panel opens; keep the focus for keyboard users.
  if (focused) first.node().focus();
}

function mapDrawing(width, height, label) {
  return d3.create("svg").attr("viewBox", `0 0 ${width} ${height}`).attr("class", "map").attr("role", "group").attr("aria-label", label);
}

function mapZoom(svg, width, height, zoomed) {
  const zoom = d3
    .zoom()
    .scaleExtent([1, 12])
    .translateExtent([[0, 0], [width, height]])
    // The wheel without Ctrl and a single finger scroll the page.
    .filter((event) => (event.type === "wheel" ? event.ctrlKey || event.metaKey : !event.touches || event.touches.length > 1))
    .on("zoom", ({ transform }) => zoomed(transform));
  svg.call(zoom);
  return zoom;
}

/** Transform coordinates of the map to those of the drawing, with the same scale for both axes. */
function mapFit(width, height) {
  const { x, y, r } = data.map;
  const edges = (values, sign, pick) => pick(d3.range(K), (topic) => values[topic] + sign * r[topic]);
  const [left, right] = [edges(x, -1, d3.min), edges(x, 1, d3.max)];
  const [top, bottom] = [edges(y, -1, d3.min), edges(y, 1, d3.max)];
  const [w, h] = [Math.max(right - left, 1e-9), Math.max(bottom - top, 1e-9)];
  // Leave room for a line of text below the lowest circles.
  const scale = Math.min((width * (1 - 2 * MAP_MARGIN)) / w, (height * (1 - 2 * MAP_MARGIN) - 16) / h);
  return {
    width,
    height,
    x: (topic) => width / 2 + (x[topic] - (left + right) / 2) * scale,
    y: (topic) => height / 2 - 8 + (y[topic] - (top + bottom) / 2) * scale,
    r: (topic) => Math.max(r[topic] * scale, 3),
  };
}

function mapButtons(svg, zoom) {
  const button = (text, label, click) => element("button", { type: "button", "aria-label": label, title: label, click }, text);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 200;
  return element(
    "div",
    { class: "zoom" },
    button("+", "Zoom in", () => zoom.scaleBy(svg.transition().duration(still), 1.6)),
    button("−", "Zoom out", () => zoom.scaleBy(svg.transition().duration(still), 1 / 1.6)),
    button("⤢", "Whole map", () => zoom.transform(svg.transition().duration(still), d3.zoomIdentity)),
  );
}

function placeMap() {
  const { circles, fit, transform } = mapShown;
  circles
    .attr("cx", (topic) => transform.applyX(fit.x(topic)))
    .attr("cy", (topic) => transform.applyY(fit.y(topic)))
    .attr("r", (topic) => fit.r(topic) * transform.k)
    .classed("selected", (topic) => topic === selected);
  placeLabels();
}

/** Place labels by descending size of the topics; those that find no place among the others wait until the map is zoomed. */
function placeLabels() {
  const { labels, fit, transform } = mapShown;
  const taken = [];
  const order = d3.range(K).sort((a, b) => (b === selected) - (a === selected) || data.map.r[b] - data.map.r[a] || a - b);
  const discs = d3.range(K).map((topic) => discOf(topic, fit, transform));
  const shown = [];
  for (const topic of order) {
    const { name, number } = topics[topic];
    // As many words as fit beside the other circles and labels, or else the number.
    const texts = [topicTitle(topic, fit.width < 560 ? 12 : 24), `${number} ${shortened(name[0], 16)}`, String(number)];
    const boxes = texts
      .flatMap((text) => labelBoxes(discs[topic], text).map((box) => ({ text, ...box })))
      .filter((box) => isInside(box, fit) && !taken.some((other) => boxesTouch(box, other)));
    const free = boxes.find((box) => !discs.some((disc) => disc.topic !== topic && discTouches(disc, box)));
    const box = free ?? boxes[0];
    if (!box) continue;
    taken.push(box);
    shown.push({ topic, ...box });
  }
  writeLabels(labels, shown);
}

function writeLabels(labels, shown) {
  labels
    .selectAll("text")
    .data(shown, (one) => one.topic)
    .join("text")
    .attr("x", (one) => (one.left + one.right) / 2)
    .attr("y", (one) => one.bottom - 4)
    .text((one) => one.text);
}

const isInside = (box, fit) => box.left > 0 && box.right < fit.width && box.top > 0 && box.bottom < fit.height;

const boxesTouch = (a, b) => a.right >= b.left && a.left <= b.right && a.bottom >= b.top && a.top <= b.bottom;

function discTouches(disc, box) {
  const x = Math.min(Math.max(disc.x, box.left), box.right);
  const y = Math.min(Math.max(disc.y, box.top), box.bottom);
  return (disc.x - x) ** 2 + (disc.y - y) ** 2 < disc.r ** 2;
}

const discOf = (topic, fit, transform) => ({
  topic,
  x: transform.applyX(fit.x(topic)),
  y: transform.applyY(fit.y(topic)),
  r: fit.r(topic) * transform.k,
});

const measuring = document.createElement("canvas").getContext("2d");
const measured = new Map();

function widthOf(text) {
  if (!measured.has(text)) {
    measuring.font = "12px system-ui, sans-serif";
    measured.set(text, measuring.measureText(text).width);
  }
  return measured.get(text);
}

/** Possible positions of a label: on its circle if it is wide enough, else below, above, right or left of it. */
function labelBoxes({ x, y, r }, text) {
  const half = widthOf(text) / 2 + 3;
  const at = (middle, top) => ({ left: middle - half, right: middle + half, top, bottom: top + 16 });
  if (half < r) return [at(x, y - 8)];
  return [at(x, y + r + 1), at(x, y - r - 17), at(x + r + half + 2, y - 8), at(x - r - half - 2, y - 8)];
}

/** Move the focus to the nearest circle in the direction of an arrow key. */
function moveFocus(event, topic) {
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    select(topic);
    return;
  }
  if (!arrows[event.key]) return;
  event.preventDefault();
  focusNearest(event.key, topic, mapShown.circles, mapShown.fit.x, mapShown.fit.y);
}

const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** Focus the circle, drawn for a number, that is nearest to that of `own` in the direction of an arrow key. */
function focusNearest(key, own, circles, x, y) {
  const [right, down] = arrows[key] ?? [0, 0];
  let [nearest, least] = [null, Infinity];
  for (const other of circles.data()) {
    const [dx, dy] = [x(other) - x(own), y(other) - y(own)];
    const along = dx * right + dy * down;
    const aside = Math.abs(dx * down) + Math.abs(dy * right);
    if (along > 1e-6 && along + 2 * aside < least) [nearest, least] = [other, along + 2 * aside];
  }
  if (nearest === null) return;
  circles.attr("tabindex", (other) => (other === nearest ? 0 : -1));
  circles.filter((other) => other === nearest).node().focus();
}

function showTooltipBeside(node, lines) {
  if (!node.matches(":focus-visible")) return;
  const box = node.getBoundingClientRect();
  showTooltip(lines, box.right, box.bottom);
}

onSelect(() => {
  if (mapShown) placeMap();
});
