
// Headings of numbers become buttons that sort the table; without scripts it stays in order.
for (const heading of document.querySelectorAll("th[data-sort]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = heading.textContent;
  heading.replaceChildren(button);
  button.addEventListener("click", () => {
    const order = heading.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
    for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const value = (row) => Number(row.cells[heading.cellIndex].dataset.value);
    const body = heading.closest("table").tBodies[0];
    body.append(...[...body.rows].sort((a, b) => sign * (value(a) - value(b))));
  });
}
