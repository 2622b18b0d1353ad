// Shares of a topic by groups of documents: a line with error bands for ordered groups, bars for others.

let groupTopic = null;

function drawGroupView(section, of) {
  groupTopic ??= selected ?? mostVaried(of);
  const place = section.querySelector(".chart");
  const means = meansOf(groupTopic, of);
  // A frame that is not shown yet has no width.
  const width = Math.max(place.clientWidth, 280);
  const lines = linesOfGroups(of);
  place.replaceChildren(lines ? lineChart(of, lines, width) : barChart(of, means, width));
  section.querySelector(".legend.lines").replaceChildren(...(of.lines ? lines.map(keyOfLine) : []));
  section.querySelector(".controls").replaceChildren(groupField(section));
  section.querySelector(".numbers").replaceChildren(numbersOf(of, means));
  drawHeat(section, of);
}

/** The topic whose share varies most between the groups. */
function mostVaried(of) {
  const spread = d3.range(K).map((topic) => d3.deviation(courseOf(topic, of), (one) => one.share) ?? 0);
  return d3.maxIndex(spread);
}

/** The means of the topic along each line, with the period of each; null for groups without an order. */
function linesOfGroups(of) {
  if (of.trend) return [{ means: courseOf(groupTopic, of).map((one) => ({ ...one, period: one.name })) }];
  return of.lines && of.lines.of.map(({ name, first, places }, place) => ({
    name,
    color: groupColor(place),
    means: places.map((at, group) => ({ ...meanOf(groupTopic, first + group, of), period: of.lines.periods[at] })),
  }));
}

const keyOfLine = ({ name, color }) =>
  element("span", {}, element("span", { class: "swatch", style: `background: ${color}` }), word(name));

function groupField(section) {
  const choices = topics.map(({ number }, topic) =>
    element("option", { value: number, selected: topic === groupTopic }, topicTitle(topic, 40)),
  );
  const id = section.id === "groups" ? "group-topic" : `${section.id}-topic`;
  const input = element("select", { id, change: () => select(places.get(Number(input.value))) }, ...choices);
  return element("div", { class: "field" }, element("label", { for: id }, "Topic"), input);
}

const showGroupTooltip = (event, { name, share, error, documents }) =>
  showTooltip(
    [name, `${percent(share)}${error === null ? "" : ` ± ${percent(error)}`}`, `${documents.toLocaleString("en")} documents`],
    event.clientX,
    event.clientY,
  );

function lineChart(of, lines, width) {
  const [height, left, bottom] = [300, 56, 34];
  const names = of.lines ? of.lines.periods : lines[0].means.map((one) => one.period);
  const x = d3.scalePoint(names, [left, width - 12]).padding(0.2);
  const top = d3.max(lines, ({ means }) => d3.max(means, (one) => one.share + one.error)) || 1;
  const y = d3.scaleLinear([0, top], [height - bottom, 12]).nice(5);
  const svg = drawing(width, height, `Share of topic ${topicTitle(groupTopic)} by ${of.column}`);
  const line = svg.selectAll("g").data(lines).join("g").style("--of-line", (one) => one.color ?? null);
  const [across, up] = [(one) => x(one.period), (one) => y(one.share)];
  const band = d3.area().x(across).y0((one) => y(Math.max(0, one.share - one.error))).y1((one) => y(one.share + one.error));
  line.append("path").attr("class", "band").attr("d", ({ means }) => band(means));
  line.append("path").attr("class", "line").attr("d", ({ means }) => d3.line().x(across).y(up)(means));
  line
    .append("g")
    .attr("class", "points")
    .selectAll("circle")
    .data(({ means }) => means)
    .join("circle")
    .classed("few", (one) => one.few)
    .attr("cx", across)
    .attr("cy", up)
    .attr("r", Math.min(3.5, width / names.length / 3))
    .on("pointerenter", showGroupTooltip)
    .on("pointerleave", hideTooltip);
  const most = Math.max(2, Math.floor((width - left) / 60));
  svg.append("g")
    .attr("class", "axis")
    .attr("transform", `translate(0 ${height - bottom})`)
    .call(d3.axisBottom(x).tickValues(someOf(names, most)).tickFormat((name) => shortened(name, 10)));
  svg.append("g").attr("class", "axis").attr("transform", `translate(${left} 0)`).call(d3.axisLeft(y).ticks(5).tickFormat(percent));
  return svg.node();
}

function barChart(of, means, width) {
  const rows = [...means].sort((a, b) => b.share - a.share);
  const name = (one, space) => fitted((length) => shortened(one.name, length), 60, space - 8);
  const widest = d3.max(rows, (one) => widthOf(name(one, width * 0.35)));
  const [step, left, bottom] = [22, widest + 10, 30];
  const height = rows.length * step + bottom;
  const x = d3.scaleLinear([0, d3.max(rows, (one) => one.share + one.error) || 1], [left, width - 16]).nice(5);
  const svg = drawing(width, height, `Share of topic ${topicTitle(groupTopic)} by ${of.column}`);
  const row = svg
    .selectAll("g")
    .data(rows)
    .join("g")
    .attr("transform", (_, place) => `translate(0 ${place * step})`)
    .on("pointerenter pointermove", showGroupTooltip)
    .on("pointerleave", hideTooltip);
  row.append("rect").attr("class", (one) => (one.few ? "bar few" : "bar")).attr("x", left).attr("y", 3).attr("height", step - 6).attr("width", (one) => x(one.share) - left);
  row.append("path").attr("class", "error").attr("d", (one) => `M${x(Math.max(0, one.share - one.error))},${step / 2}H${x(one.share + one.error)}`);
  row.append("text").attr("class", "name").attr("x", left - 6).attr("y", step / 2).text((one) => name(one, left));
  svg.append("g")
    .attr("class", "axis")
    .attr("transform", `translate(0 ${height - bottom})`)
    .call(d3.axisBottom(x).ticks(Math.max(2, width / 120)).tickFormat(percent));
  return svg.node();
}

function numbersOf(of, means) {
  const head = [of.column, "Share", "Standard error (points)", "Documents", "Lift", "from", "to"].map((text, place) =>
    element("th", { scope: "col", class: place ? "number" : null }, text),
  );
  const cell = (value, text, few) => element("td", { class: few ? "number few" : "number", "data-value": value }, value === null ? "-" : text(value));
  const ratio = (value) => value.toFixed(2);
  const rows = means.map(({ name, share, error, documents, few }, group) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, word(name)),
      cell(share, percent),
      cell(error, percent),
      cell(documents, (number) => number.toLocaleString("en"), few),
      ...["lift", "low", "high"].map((name) => cell(liftOf(of, groupTopic, group)[name], ratio)),
    ),
  );
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  return element("details", {}, element("summary", {}, "Numbers"), element("div", { class: "scroll" }, table));
}

onSelect((topic) => {
  if (topic === null) return;
  groupTopic = topic;
  for (const [name, view] of views) {
    if (!name.startsWith("groups")) continue;
    view.drawnFor = null;
    if (shownView === name) refresh(view);
  }
});
