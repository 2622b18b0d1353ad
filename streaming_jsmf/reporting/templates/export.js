// Tables saved as CSV and figures as SVG, by buttons below them.

function prepareExport() {
  for (const section of document.querySelectorAll("main > section")) {
    const buttons = [];
    if (section.querySelector("table, .numbers, .each")) {
      buttons.push(saveButton("Save as CSV", () => save(`${section.id}.csv`, "text/csv", tablesOf(section))));
    }
    for (const chart of section.querySelectorAll(".chart")) {
      const [name, title] = [chart.dataset.title ?? section.id, chart.dataset.title?.replace("-", " ")];
      const draw = () => save(`${name}.svg`, "image/svg+xml", figureOf(chart));
      buttons.push(saveButton(title ? `Save the ${title} as SVG` : "Save as SVG", draw));
    }
    if (buttons.length) section.append(element("p", { class: "saves" }, ...buttons));
  }
}

const saveButton = (text, click) => element("button", { type: "button", click }, text);

function save(name, type, text) {
  const link = element("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** All tables of a section as CSV, separated by empty lines, without rows that a search hides. */
function tablesOf(section) {
  const rowsOf = (table) => [...table.rows].filter((row) => !row.hidden).map((row) => [...row.cells].map(cellText));
  const lines = (table) => rowsOf(table).map((row) => row.map(quoted).join(",")).join("\r\n");
  return `${[...section.querySelectorAll("table")].map(lines).join("\r\n\r\n")}\r\n`;
}

/** The exact number of a cell, the words of a list, or the text as it is shown. */
function cellText(cell) {
  const words = [...cell.querySelectorAll(".bars .word")];
  if (words.length) return words.map((one) => one.textContent).join(", ");
  if (cell.matches(".number[data-value], .trend")) return cell.dataset.value;
  return cell.textContent.replace(/\s+/g, " ").trim();
}

/** An apostrophe keeps spreadsheets from evaluating a text, such as =2+3. */
function quoted(text) {
  const safe = /^[=+\-@]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const DRAWN_STYLES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "paint-order", "font",
  "text-anchor", "dominant-baseline", "opacity",
];

/** The drawings of an element as one SVG with their styles and positions; a canvas becomes an image. */
function figureOf(place) {
  const box = place.getBoundingClientRect();
  // In a separate document, because the content security policy of the page blocks images.
  const made = d3.select(document.implementation.createDocument(svgNamespace, "svg").documentElement);
  made.attr("viewBox", `0 0 ${place.scrollWidth} ${box.height}`);
  for (const drawn of place.querySelectorAll("svg, canvas")) {
    const { left, top, width, height } = drawn.getBoundingClientRect();
    const copy = drawn.matches("canvas")
      ? made.append("image").attr("href", drawn.toDataURL()).attr("style", "image-rendering: pixelated")
      : made.append(() => styledCopy(drawn));
    copy.attr("x", left - box.left).attr("y", top - box.top).attr("width", width).attr("height", height);
  }
  return new XMLSerializer().serializeToString(made.node());
}

function styledCopy(drawn) {
  const copy = drawn.cloneNode(true);
  const copies = [copy, ...copy.querySelectorAll("*")];
  [drawn, ...drawn.querySelectorAll("*")].forEach((node, place) => {
    const style = getComputedStyle(node);
    copies[place].setAttribute("style", DRAWN_STYLES.map((name) => `${name}: ${style.getPropertyValue(name)}`).join("; "));
  });
  return copy;
}
