// Shares of a topic by groups of documents: a line with error bands for ordered groups, bars for others.

let groupTopic = null;

function drawGroupView(section) {
  groupTopic ??= selected ?? mostVaried();
  const place = section.querySelector(".chart");
  const means = meansOf(groupTopic);
  // A frame that is not shown yet has no width.
  const width = Math.max(place.clientWidth, 280);
  const chart = groups.trend ? lineChart(courseOf(groupTopic), width) : barChart(means, width);
  place.replaceChildren(chart);
  section.querySelector(".controls").replaceChildren(groupField(section));
  section.querySelector(".numbers").replaceChildren(numbersOf(means));
  drawHeat(section);
}

/** The topic whose share varies most between the groups. */
function mostVaried() {
  const spread = d3.range(K).map((topic) => d3.deviation(courseOf(topic), (one) => one.share) ?? 0);
  return d3.maxIndex(spread);
}

function groupField(section) {
  const choices = topics.map(({ number }, topic) =>
    element("option", { value: number, selected: topic === groupTopic }, topicTitle(topic, 40)),
  );
  const input = element("select", { id: "group-topic", change: () => select(places.get(Number(input.value))) }, ...choices);
  return element("div", { class: "field" }, element("label", { for: "group-topic" }, "Topic"), input);
}

const showGroupTooltip = (event, { name, share, error, documents }) =>
  showTooltip(
    [name, `${percent(share)}${error === null ? "" : ` ± ${percent(error)}`}`, `${documents.toLocaleString("en")} documents`],
    event.clientX,
    event.clientY,
  );

function lineChart(trend, width) {
  const [height, left, bottom] = [300, 56, 34];
  const names = trend.map((one) => one.name);
  const x = d3.scalePoint(names, [left, width - 12]).padding(0.2);
  const top = d3.max(trend, (one) => one.share + one.error) || 1;
  const y = d3.scaleLinear([0, top], [height - bottom, 12]).nice(5);
  const svg = drawing(width, height, `Share of topic ${topicTitle(groupTopic)} by ${groups.column}`);
  svg.append("path")
    .attr("class", "band")
    .attr("d", d3.area().x((one) => x(one.name)).y0((one) => y(Math.max(0, one.share - one.error))).y1((one) => y(one.share + one.error))(trend));
  svg.append("path").attr("class", "line").attr("d", d3.line().x((one) => x(one.name)).y((one) => y(one.share))(trend));
  svg.append("g")
    .attr("class", "points")
    .selectAll("circle")
    .data(trend)
    .join("circle")
    .attr("cx", (one) => x(one.name))
    .attr("cy", (one) => y(one.share))
    .attr("r", Math.min(3.5, width / trend.length / 3))
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

function barChart(means, width) {
  const rows = [...means].sort((a, b) => b.share - a.share);
  const name = (one, space) => fitted((length) => shortened(one.name, length), 60, space - 8);
  const widest = d3.max(rows, (one) => widthOf(name(one, width * 0.35)));
  const [step, left, bottom] = [22, widest + 10, 30];
  const height = rows.length * step + bottom;
  const x = d3.scaleLinear([0, d3.max(rows, (one) => one.share + one.error) || 1], [left, width - 16]).nice(5);
  const svg = drawing(width, height, `Share of topic ${topicTitle(groupTopic)} by ${groups.column}`);
  const row = svg
    .selectAll("g")
    .data(rows)
    .join("g")
    .attr("transform", (_, place) => `translate(0 ${place * step})`)
    .on("pointerenter pointermove", showGroupTooltip)
    .on("pointerleave", hideTooltip);
  row.append("rect").attr("class", "bar").attr("x", left).attr("y", 3).attr("height", step - 6).attr("width", (one) => x(one.share) - left);
  row.append("path").attr("class", "error").attr("d", (one) => `M${x(Math.max(0, one.share - one.error))},${step / 2}H${x(one.share + one.error)}`);
  row.append("text").attr("class", "name").attr("x", left - 6).attr("y", step / 2).text((one) => name(one, left));
  svg.append("g")
    .attr("class", "axis")
    .attr("transform", `translate(0 ${height - bottom})`)
    .call(d3.axisBottom(x).ticks(Math.max(2, width / 120)).tickFormat(percent));
  return svg.node();
}

function numbersOf(means) {
  const head = [groups.column, "Share", "Standard error (points)", "Documents", "Lift", "from", "to"].map((text, place) =>
    element("th", { scope: "col", class: place ? "number" : null }, text),
  );
  const cell = (value, text) => element("td", { class: "number", "data-value": value }, value === null ? "-" : text(value));
  const ratio = (value) => value.toFixed(2);
  const rows = means.map(({ name, share, error, documents }, group) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, word(name)),
      cell(share, percent),
      cell(error, percent),
      cell(documents, (number) => number.toLocaleString("en")),
      ...["lift", "low", "high"].map((name) => cell(liftOf(groupTopic, group)[name], ratio)),
    ),
  );
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  return element("details", {}, element("summary", {}, "Numbers"), element("div", { class: "scroll" }, table));
}

onSelect((topic) => {
  const view = views.get("groups");
  if (!view || topic === null) return;
  groupTopic = topic;
  view.drawnFor = null;
  if (shownView === "groups") refresh(view);
});
