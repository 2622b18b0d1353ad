// The matrix of pairs of topics, ordered by similarity, with the tree next to it.

const matrix = {
  kind: together ? "together" : "alike",
  size: null,
  groups: Math.min(K, Math.max(2, Math.round(Math.sqrt(K)))),
  cursor: null,
  pixels: null,
};
const TREE_WIDTH = 90;
const LABEL_CELL = 11;

function drawTogether(section) {
  matrix.size ??= Math.min(Math.max(Math.floor((section.clientWidth - sideWidths(section).sum - 24) / K), 5), 26);
  const square = element("div");
  section.querySelector(".chart").replaceChildren(matrixControls(section, square), square);
  drawSquare(section, square);
  drawGroups(section);
}

/** Widths of the tree, which narrow pages omit, and of the names, left of the cells. */
function sideWidths(section) {
  const [tree, names] = section.clientWidth < 560 ? [0, 110] : [TREE_WIDTH, 190];
  return { tree, names, sum: tree + names };
}

/** Draw the legend, and below it the tree, the names and the cells. */
function drawSquare(section, place) {
  const size = matrix.size;
  const { tree, names } = sideWidths(section);
  // Small cells have no names.
  const labels = size < LABEL_CELL ? 6 : names;
  const focused = document.activeElement?.matches("#together canvas");
  const canvas = element("canvas", {
    tabindex: 0,
    role: "img",
    "aria-label": `${K} times ${K} cells, topics in the order of their similarity. Arrow keys move between cells, Enter selects the row.`,
    "aria-describedby": "together-status",
  });
  const ratio = devicePixelRatio || 1;
  canvas.width = canvas.height = Math.round(K * size * ratio);
  canvas.style.width = canvas.style.height = `${K * size}px`;
  paintCells(canvas, size, ratio);
  listenToCells(canvas, size, section.querySelector(".status"));
  const square = element("div", { class: "square" });
  square.style.gridTemplateColumns = `${tree}px ${labels}px ${K * size}px`;
  square.append(drawTree(tree, K * size), rowLabels(labels, size), canvas);
  place.replaceChildren(legend(), element("div", { class: "scroll" }, square));
  if (focused) canvas.focus();
}

const cellValue = (row, column) => (matrix.kind === "together" ? together.ratio : alike)[row * K + column];

const SHADES = 255;

/** The ratios to chance that have the two full colors: the 2nd and 98th percentile of the pairs, at most 16-fold. */
function extremes() {
  const ratios = [...together.ratio].filter((_, at) => at % (K + 1)).map((ratio) => Math.log2(Math.max(ratio, 1 / 16)));
  return [Math.min(d3.quantile(ratios, 0.02) ?? 0, -0.5), Math.max(Math.min(d3.quantile(ratios, 0.98) ?? 0, 4), 0.5)];
}

/** Color scale of the cells: diverging around 1 for co-occurrence relative to chance, sequential for similarity. */
function cellColors() {
  if (matrix.kind === "together") {
    const [low, high] = extremes();
    const shades = d3.quantize(d3.piecewise(d3.interpolateRgb, [color("cold"), color("cell"), color("warm")]), SHADES).map(channels);
    const place = d3.scaleLinear([low, 0, high], [0, (SHADES - 1) / 2, SHADES - 1]).clamp(true);
    return (value) => shades[Math.round(place(Math.log2(Math.max(value, 1e-6))))];
  }
  const shades = d3.quantize(d3.interpolateRgb(color("cell"), color("warm")), SHADES).map(channels);
  let most = 0;
  for (let row = 0; row < K; row++) for (let column = 0; column < row; column++) most = Math.max(most, cellValue(row, column));
  return (value) => shades[Math.min(SHADES - 1, Math.round((value / (most || 1)) * (SHADES - 1)))];
}

/** One pixel for each cell, cached until the values or the color scheme change. */
function cellPixels() {
  const shown = `${matrix.kind} ${dark.matches}`;
  if (matrix.pixels?.shown === shown) return matrix.pixels.canvas;
  const canvas = element("canvas", { width: K, height: K });
  const pixels = canvas.getContext("2d");
  const image = pixels.createImageData(K, K);
  const [fill, own] = [cellColors(), channels(color("own"))];
  data.tree.order.forEach((row, y) => {
    data.tree.order.forEach((column, x) => {
      image.data.set(row === column ? own : fill(cellValue(row, column)), 4 * (y * K + x));
    });
  });
  pixels.putImageData(image, 0, 0);
  matrix.pixels = { shown, canvas };
  return canvas;
}

/** Enlarge the pixels, which takes a third of the time of drawing 40,000 rectangles. */
function paintCells(canvas, size, ratio) {
  const brush = canvas.getContext("2d");
  brush.scale(ratio, ratio);
  brush.imageSmoothingEnabled = false;
  brush.drawImage(cellPixels(), 0, 0, K * size, K * size);
  if (size < 8) return;
  // Gaps between the cells.
  for (let place = 1; place <= K; place++) {
    brush.clearRect(place * size - 1, 0, 1, K * size);
    brush.clearRect(0, place * size - 1, K * size, 1);
  }
}

/** The four bytes of a color. */
function channels(text) {
  const { r, g, b } = d3.rgb(text);
  return [r, g, b, 255];
}

function linesOfCell(row, column) {
  const names = `${topicTitle(row, 32)} and ${topicTitle(column, 32)}`;
  if (row === column) return [topicTitle(row, 40), `${percent(topics[row].share)} of the corpus`];
  const lines = [names];
  if (together) {
    lines.push(`in the same document ${together.ratio[row * K + column].toFixed(2)} times as often as by chance`);
    lines.push(`where topic ${topics[row].number} occurs, ${percent(together.given[row * K + column])} of the text is of topic ${topics[column].number}`);
  }
  lines.push(`similarity of words: ${percent(alike[row * K + column])}`);
  return lines;
}

function listenToCells(canvas, size, status) {
  const cellAt = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (position) => Math.min(K - 1, Math.max(0, Math.floor(position / size)));
    return [data.tree.order[at(event.clientY - box.top)], data.tree.order[at(event.clientX - box.left)]];
  };
  canvas.addEventListener("pointermove", (event) => showTooltip(linesOfCell(...cellAt(event)), event.clientX, event.clientY));
  canvas.addEventListener("pointerleave", hideTooltip);
  canvas.addEventListener("click", (event) => select(cellAt(event)[0]));
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key === "Enter" && matrix.cursor) select(data.tree.order[matrix.cursor[0]]);
    if (!steps[event.key]) return;
    event.preventDefault();
    const before = matrix.cursor ?? [0, 0];
    matrix.cursor = before.map((at, axis) => Math.min(K - 1, Math.max(0, at + steps[event.key][axis])));
    const lines = linesOfCell(...matrix.cursor.map((at) => data.tree.order[at]));
    status.textContent = lines.join("; ");
    const box = canvas.getBoundingClientRect();
    showTooltip(lines, box.left + (matrix.cursor[1] + 1) * size, box.top + (matrix.cursor[0] + 1) * size);
  });
  canvas.addEventListener("blur", hideTooltip);
}

function rowLabels(width, size) {
  const svg = drawing(width, K * size, "Topics in the order of their similarity").attr("class", "row-labels");
  if (size < LABEL_CELL) return svg.node();
  svg.selectAll("text")
    .data(data.tree.order)
    .join("text")
    .attr("x", width - 6)
    .attr("y", (_, place) => (place + 0.5) * size)
    .style("font-size", `${Math.min(size - 1, 12)}px`)
    .text((topic) => fitted((length) => topicTitle(topic, length), 32, width - 8))
    .on("click", (_, topic) => select(topic));
  return svg.node();
}

function legend() {
  if (matrix.kind !== "together") return element("p", { class: "faint" }, "Darker cells: more words in common.");
  const key = (name, text) => element("span", {}, element("span", { class: `swatch ${name}` }), text);
  const [low, high] = extremes().map((step) => `${(2 ** step).toPrecision(2)} times as often as by chance`);
  return element("p", { class: "legend faint" }, key("cold", low), key("cell", "as often as by chance"), key("warm", high));
}

function matrixControls(section, square) {
  const size = element("input", {
    type: "range",
    id: "cell-size",
    min: 4,
    max: 28,
    value: matrix.size,
    input: () => {
      matrix.size = Number(size.value);
      drawSquare(section, square);
    },
  });
  const parts = [element("div", { class: "field" }, element("label", { for: "cell-size" }, "Cell size"), size)];
  if (together) {
    const kind = element(
      "select",
      {
        id: "cell-kind",
        change: () => {
          matrix.kind = kind.value;
          drawSquare(section, square);
        },
      },
      element("option", { value: "together", selected: matrix.kind === "together" }, "co-occurrence in documents"),
      element("option", { value: "alike", selected: matrix.kind === "alike" }, "similarity of words"),
    );
    parts.unshift(element("div", { class: "field" }, element("label", { for: "cell-kind" }, "Cells show"), kind));
  }
  return element("div", { class: "controls" }, ...parts);
}
