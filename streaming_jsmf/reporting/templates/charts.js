// Lines and axes that several parts of the page draw, by D3.

const svgNamespace = "http://www.w3.org/2000/svg";

function drawing(width, height, label) {
  return d3
    .create("svg")
    .attr("viewBox", `0 0 ${width} ${height}`)
    .attr("width", width)
    .attr("height", height)
    .attr("role", "img")
    .attr("aria-label", label);
}

/** A line without axes; the last value is a point. */
function sparkline(trend, width, height, label) {
  const x = d3.scaleLinear([0, trend.length - 1], [2, width - 4]);
  const y = d3.scaleLinear([0, d3.max(trend, (one) => one.share) || 1], [height - 3, 3]);
  const first = percent(trend[0].share);
  const last = percent(trend.at(-1).share);
  const svg = drawing(width, height, `${label}: from ${first} to ${last}`).attr("class", "sparkline");
  const line = d3
    .line()
    .x((_, place) => x(place))
    .y((one) => y(one.share));
  svg.append("path").attr("d", line(trend));
  svg
    .append("circle")
    .attr("cx", x(trend.length - 1))
    .attr("cy", y(trend.at(-1).share))
    .attr("r", 2.2);
  return svg.node();
}

/** Ticks that leave room for their texts. */
function someOf(names, most) {
  const every = Math.ceil(names.length / most);
  return names.filter((_, place) => place % every === 0);
}
