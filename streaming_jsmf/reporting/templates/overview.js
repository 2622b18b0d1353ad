// The table of topics: search as you type, sort by any column, details on demand.

const rowOf = new Map(
  [...document.querySelectorAll("table.topics tbody tr")].map((row) => [places.get(Number(row.dataset.topic)), row]),
);

function prepareOverview() {
  const table = document.querySelector("table.topics");
  const headings = [...table.tHead.rows[0].cells];
  if (groups && groups.trend) addTrends(table, headings);
  for (const heading of table.tHead.rows[0].cells) makeSortable(table, heading);
  const controls = document.getElementById("controls");
  const status = element("output", { class: "faint", "aria-live": "polite", for: "search" });
  controls.append(searchField(status), sortField(table), detailsButton(table), status);
  controls.hidden = false;
  table.classList.add("folded");
  for (const [topic, row] of rowOf) prepareRow(topic, row);
  onSelect((topic) => {
    for (const [other, row] of rowOf) {
      row.classList.toggle("selected", other === topic);
    }
  });
}

function prepareRow(topic, row) {
  row.addEventListener("click", (event) => {
    // Do not select a topic when text is marked for copying.
    if (String(getSelection()) && !event.target.closest("a")) return;
    if (event.target.closest("button")) return;
    event.preventDefault();
    select(topic);
  });
}

function searchField(status) {
  const input = element("input", {
    type: "search",
    id: "search",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "word, label or number",
    input: () => filterRows(input.value, status),
  });
  return element("div", { class: "field" }, element("label", { for: "search" }, "Find topics"), input);
}

function filterRows(query, status) {
  const parts = folded(query).split(/\s+/).filter(Boolean);
  let found = 0;
  for (const hit of document.querySelectorAll(".topics .hit")) hit.classList.remove("hit");
  for (const [topic, row] of rowOf) {
    const shown = isFound(topic, parts);
    row.hidden = !shown;
    found += shown;
    if (!shown || !parts.length) continue;
    for (const { item, text } of wordsOfRow(row)) {
      if (parts.some((part) => text.includes(part))) item.classList.add("hit");
    }
  }
  status.textContent = query.trim() ? `${found} of ${K} topics` : "";
}

const foldedWords = new WeakMap();

/** The words that a row shows, folded for comparison. */
function wordsOfRow(row) {
  if (!foldedWords.has(row)) {
    const items = [...row.querySelectorAll(".bars .word, .label .word, .characteristic .word, .anchor .word")];
    foldedWords.set(row, items.map((item) => ({ item, text: folded(item.textContent) })));
  }
  return foldedWords.get(row);
}

function sortField(table) {
  const choices = [...table.tHead.rows[0].cells].map((heading, column) =>
    element("option", { value: column, selected: heading.hasAttribute("aria-sort") }, heading.textContent),
  );
  const input = element("select", { id: "sort", change: () => sortBy(table, Number(input.value)) }, ...choices);
  return element("div", { class: "field" }, element("label", { for: "sort" }, "Sort by"), input);
}

function detailsButton(table) {
  const button = element(
    "button",
    {
      type: "button",
      "aria-pressed": "false",
      click: () => {
        const open = table.classList.toggle("folded");
        button.setAttribute("aria-pressed", String(!open));
      },
    },
    "Details of all topics",
  );
  return button;
}

function makeSortable(table, heading) {
  const button = element(
    "button",
    { type: "button", click: () => sortBy(table, heading.cellIndex) },
    heading.textContent,
  );
  heading.replaceChildren(button);
}

/** Sort numbers in descending order first, texts and topic numbers in ascending order; missing values come last. */
function sortBy(table, column) {
  const headings = table.tHead.rows[0].cells;
  const heading = headings[column];
  const [first, second] = heading.dataset.first === "ascending" ? ["ascending", "descending"] : ["descending", "ascending"];
  const order = heading.getAttribute("aria-sort") === first ? second : first;
  for (const other of headings) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const value = (row) => row.cells[column].dataset.value;
  const compared = (a, b) => {
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    return sign * (heading.dataset.kind === "text" ? a.localeCompare(b) : Number(a) - Number(b));
  };
  const body = table.tBodies[0];
  body.append(...[...body.rows].sort((a, b) => compared(value(a), value(b))));
  document.getElementById("sort").value = String(column);
}

function addTrends(table, headings) {
  const column = headings.findIndex((heading) => heading.dataset.column === "words");
  const title = `Change of the mean share from the first to the last third of the values of ${groups.column}`;
  const heading = element("th", { scope: "col", "data-column": "trend", title }, "Trend");
  headings[column].before(heading);
  for (const [topic, row] of rowOf) {
    const cell = element("td", { class: "trend", "data-value": groups.trend.change[topic] });
    cell.append(sparkline(topic, 96, 24));
    row.cells[column].before(cell);
  }
}
