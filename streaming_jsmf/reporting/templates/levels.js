// Several K: how the topics of one model are composed of those of the next.

const LEAST_FLOW = 0.08;

function drawLevels(section) {
  const place = section.querySelector(".chart");
  const { models, flows } = data.levels;
  const most = d3.max(models, (model) => model.names.length);
  const left = place.clientWidth < 700 ? models.length - 1 : null; // the level whose names stand left of it
  const width = Math.max(place.clientWidth, (left === null ? 150 : 110) * models.length);
  const room = left === null ? 200 : 1; // for the last names
  const height = Math.max(420, most * 15);
  const graph = levelsGraph(models, flows);
  d3.sankey()
    .nodeId((node) => node.id)
    .nodeAlign((node) => node.level)
    .nodeSort(null)
    .nodeWidth(10)
    .nodePadding(Math.max(1.5, Math.min(8, (0.3 * height) / most)))
    .extent([[1, 4], [width - room, height - 4]])(graph);
  const svg = drawing(width, height, `Topics of ${models.map((model) => model.names.length).join(", ")}, and the composition of each in the next model`);
  const links = svg
    .append("g")
    .attr("class", "links")
    .selectAll("path")
    .data(graph.links)
    .join("path")
    .attr("d", d3.sankeyLinkHorizontal())
    .attr("stroke-width", (link) => Math.max(link.width, 0.5))
    .on("pointerenter pointermove", (event, link) => showTooltip(linesOfFlow(link), event.clientX, event.clientY))
    .on("pointerleave", hideTooltip);
  const nodes = svg.append("g").attr("class", "nodes").selectAll("g").data(graph.nodes).join("g");
  nodes
    .append("rect")
    .attr("x", (node) => node.x0)
    .attr("y", (node) => node.y0)
    .attr("width", (node) => node.x1 - node.x0)
    .attr("height", (node) => Math.max(node.y1 - node.y0, 1))
    .on("pointerenter", (event, node) => {
      links.classed("lit", (link) => link.source === node || link.target === node);
      showTooltip([titleOfNode(node), `${percent(node.share)} of the corpus`], event.clientX, event.clientY);
    })
    .on("pointerleave", () => {
      links.classed("lit", false);
      hideTooltip();
    })
    .on("click", (_, node) => node.own && places.has(node.topic) && select(places.get(node.topic)));
  const gap = (width - room) / (models.length - 1) - 20;
  labelNodes(nodes, left, left === null ? Math.min(gap, room - 16) : gap / 2);
  const heads = element("ol", { class: "heads", style: `width: ${width}px; padding-right: ${room}px` }, ...models.map((model) => element("li", {}, `K = ${model.names.length}`)));
  place.replaceChildren(element("div", { class: "scroll" }, heads, svg.node()));
  section.querySelector(".each").replaceChildren(metricsOfLevels(models));
}

/** Label the nodes, except where a label would overlap the one above. */
function labelNodes(nodes, left, widest) {
  const lowest = new Map();
  nodes
    .filter((node) => {
      const middle = (node.y0 + node.y1) / 2;
      if (middle < (lowest.get(node.level) ?? -Infinity) + 12) return false;
      lowest.set(node.level, middle);
      return true;
    })
    .append("text")
    .attr("x", (node) => (node.level === left ? node.x0 - 5 : node.x1 + 5))
    .style("text-anchor", (node) => (node.level === left ? "end" : "start"))
    .attr("y", (node) => (node.y0 + node.y1) / 2)
    .text((node) => fitted((length) => `${node.topic} ${fitting(node.name.split(", "), length)}`, 32, widest));
}

const titleOfNode = (node) => `K = ${node.size}, topic ${node.topic} ${shortened(node.name, 40)}`;

function linesOfFlow(link) {
  const share = link.value / link.source.share;
  return [`${titleOfNode(link.source)} → ${titleOfNode(link.target)}`, `${percent(share)} of the first`];
}

/** Order the nodes of each level by the mean position of their sources, so that few flows cross. */
function levelsGraph(models, flows) {
  const last = models.length - 1;
  const nodes = [];
  const links = [];
  let places = null;
  models.forEach((model, level) => {
    const size = model.names.length;
    const come = level ? incoming(flows[level - 1], places, size) : d3.range(size).map((topic) => -model.shares[topic]);
    const order = d3.range(size).sort((a, b) => come[a] - come[b]);
    places = new Array(size);
    order.forEach((topic, place) => {
      places[topic] = place;
      nodes.push({
        id: `${level} ${topic}`,
        level,
        size,
        topic,
        name: model.names[topic],
        share: model.shares[topic],
        fixedValue: Math.max(model.shares[topic], 1e-6),
        own: level === data.levels.own,
      });
    });
    if (level === last) return;
    const next = models[level + 1].names.length;
    flows[level].forEach((value, at) => {
      const [source, target] = [Math.floor(at / next), at % next];
      if (value < LEAST_FLOW * model.shares[source]) return;
      links.push({ source: `${level} ${source}`, target: `${level + 1} ${target}`, value });
    });
  });
  return { nodes, links };
}

function incoming(flow, places, size) {
  const [sums, weights] = [new Float64Array(size), new Float64Array(size)];
  flow.forEach((value, at) => {
    sums[at % size] += value * places[Math.floor(at / size)];
    weights[at % size] += value;
  });
  return sums.map((sum, topic) => (weights[topic] > 0 ? sum / weights[topic] : Infinity));
}

function metricsOfLevels(models) {
  const names = [...new Set(models.flatMap((model) => model.metrics.map(([name]) => name)))];
  const head = ["K", ...names].map((name, place) => element("th", { scope: "col", class: place ? "number" : null }, name));
  const rows = models.map((model) => {
    const values = new Map(model.metrics);
    const cells = names.map((name) => element("td", { class: "number" }, values.get(name) ?? "-"));
    return element("tr", {}, element("th", { scope: "row" }, String(model.names.length)), ...cells);
  });
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  return element("div", { class: "scroll" }, table);
}
