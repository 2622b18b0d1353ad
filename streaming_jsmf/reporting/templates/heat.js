// All topics by groups of documents: the share of a topic in each group divided by its share in all documents (lift).

const HEAT_ROW = 18;
const HEAT_NAMES = 60; // height of the names of the groups above the cells
const HEAT_GAP = 10; // gap between the periods and the documents without a date

/** Left edge of the cells of a group. */
const columnAt = (of, group, size) => group * size + (group < of.drawn ? 0 : HEAT_GAP);

/** Lift of a topic in a group and its 95% interval; `unlike` says whether the interval excludes 1. */
function liftOf(of, topic, group) {
  const { share, error } = meanOf(topic, group, of);
  const mean = overallShares(of)[topic] || 1;
  if (error === null) return { lift: share / mean, low: null, high: null, unlike: false };
  const half = of.spreads[group] * error;
  const [low, high] = [Math.max(0, share - half) / mean, (share + half) / mean];
  return { lift: share / mean, low, high, unlike: low > 1 || high < 1 };
}

/** Mean share of each topic over the documents of all groups. */
function overallShares(of) {
  const total = d3.sum(of.documents);
  of.overall ??= d3.range(K).map((topic) => d3.sum(meansOf(topic, of), (one) => one.share * one.documents) / total);
  return of.overall;
}

function liftText({ lift, low, high }) {
  const interval = low === null ? "" : ` (${low.toFixed(2)} to ${high.toFixed(2)})`;
  return `${lift.toFixed(2)} times the mean${interval}`;
}

function drawHeat(section, of) {
  const place = section.querySelector(".heat");
  if (!place) return; // too many groups
  const names = section.clientWidth < 560 ? 120 : 230;
  const order = d3.range(K).sort((a, b) => topics[b].share - topics[a].share);
  const size = Math.min(60, Math.max(8, Math.floor((section.clientWidth - names - 64 - HEAT_GAP) / of.names.length)));
  // Rotated names extend beyond the last column.
  const [width, height] = [names + columnAt(of, of.names.length, size) + 40, HEAT_NAMES + K * HEAT_ROW];
  const svg = drawing(width, height, `How many times its mean share each topic has, by ${of.column}`);
  svg.append(() => heatCells(of, order, size, names));
  svg
    .append("g")
    .attr("class", "row-labels")
    .selectAll("text")
    .data(order)
    .join("text")
    .attr("x", names - 6)
    .attr("y", (_, row) => HEAT_NAMES + (row + 0.5) * HEAT_ROW)
    .text((topic) => fitted((length) => topicTitle(topic, length), 32, names - 8))
    .on("click", (_, topic) => select(topic));
  const drawn = of.names.slice(0, of.drawn);
  const few = someOf(drawn, Math.max(1, Math.floor((size * drawn.length) / 15)));
  const shown = new Set([...few, ...of.names.slice(of.drawn)]);
  svg
    .append("g")
    .attr("class", "axis")
    .selectAll("text")
    .data(of.names)
    .join("text")
    .attr("transform", (_, group) => `translate(${names + columnAt(of, group, size) + 0.6 * size} ${HEAT_NAMES - 6}) rotate(-50)`)
    .text((name, group) => (shown.has(name) ? shortened(of.labels?.[group] ?? name, 10) : ""));
  place.replaceChildren(element("div", { class: "scroll" }, svg.node()));
}

function heatCells(of, order, size, left) {
  const shade = d3.piecewise(d3.interpolateRgb, [color("cold"), color("cell"), color("warm")]);
  const step = d3.scaleLinear([-2, 2], [0, 1]).clamp(true);
  const cells = d3.create("svg:g").attr("class", "cells");
  order.forEach((topic, row) => {
    of.names.forEach((name, group) => {
      const found = liftOf(of, topic, group);
      const lines = [`${topicTitle(topic, 32)}, ${name}`, `${percent(meanOf(topic, group, of).share)}, ${liftText(found)}`];
      cells
        .append("rect")
        .attr("x", left + columnAt(of, group, size))
        .attr("y", HEAT_NAMES + row * HEAT_ROW)
        .attr("width", size - 1)
        .attr("height", HEAT_ROW - 1)
        .attr("fill", found.unlike ? shade(step(Math.log2(Math.max(found.lift, 1e-6)))) : color("cell"))
        .on("pointermove", (event) => showTooltip(lines, event.clientX, event.clientY))
        .on("pointerleave", hideTooltip)
        .on("click", () => select(topic));
    });
  });
  return cells.node();
}
