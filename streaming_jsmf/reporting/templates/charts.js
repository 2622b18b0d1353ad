// Drawings that several views share, by D3.

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

/** The trend of a topic as a line without axes; a point marks the last value. */
function sparkline(topic, width, height) {
  const trend = courseOf(topic);
  const x = d3.scaleLinear([0, trend.length - 1], [2, width - 4]);
  const y = d3.scaleLinear([0, d3.max(trend, (one) => one.share) || 1], [height - 3, 3]);
  const [first, last] = [groups.trend.first, groups.trend.last].map((shares) => percent(shares[topic]));
  const label = `Share of topic ${topics[topic].number} by ${groups.column}, ${trend[0].name} to ${trend.at(-1).name}`;
  const svg = drawing(width, height, `${label}: ${first} in the first third, ${last} in the last`).attr("class", "sparkline");
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

/** The longest text of `made`, which shortens it to a number of characters, that is at most so many pixels wide. */
function fitted(made, most, width) {
  let length = most;
  while (length > 3 && widthOf(made(length)) > width) length--;
  return made(length);
}

/** At most `most` of the names, evenly spaced, so that their labels do not overlap. */
function someOf(names, most) {
  const every = Math.ceil(names.length / most);
  return names.filter((_, place) => place % every === 0);
}
