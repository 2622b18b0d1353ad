// The tree of topics by similarity, and the groups of topics that a cut through it defines.

/** The nodes of the tree: vertical position, height at which the parts were merged, and leaves. */
function branches() {
  const places = new Map(data.tree.order.map((topic, place) => [topic, place + 0.5]));
  const nodes = d3.range(K).map((topic) => ({ y: places.get(topic), height: 0, leaves: [topic] }));
  data.tree.merges.forEach(([first, second], step) => {
    const [a, b] = [nodes[first], nodes[second]];
    nodes.push({
      y: (a.y + b.y) / 2,
      height: data.tree.heights[step],
      leaves: [...a.leaves, ...b.leaves],
      parts: [a, b],
    });
  });
  return nodes;
}

const nodesOfTree = branches();

/** The subtrees of a cut into `count` groups, in the order of the leaves. */
function cut(count) {
  const merged = nodesOfTree.slice(0, 2 * K - count);
  const inside = new Set(merged.flatMap((node) => node.parts ?? []));
  return merged.filter((node) => !inside.has(node)).sort((a, b) => a.y - b.y);
}

/** A color for each group; neighbors differ most. */
const groupColor = (group) => `hsl(${Math.round((215 + 137.5 * group) % 360)} 55% ${dark.matches ? 68 : 42}%)`;

/** The color of each topic's group. */
function topicColors() {
  const colors = new Array(K);
  cut(matrix.groups).forEach(({ leaves }, group) => leaves.forEach((topic) => (colors[topic] = groupColor(group))));
  return colors;
}

function drawTree(width, height) {
  const svg = drawing(width, height, "Tree of the topics by similarity of their words").attr("class", "tree");
  if (!width || K === 1) return svg.node();
  // The axis starts at the first merge, because the distances below it are long and uninformative.
  const { 0: least, [K - 2]: most } = data.tree.heights;
  const x = d3.scaleLinear([least - (most - least) / 4 - 1e-9, most], [width - 2, 4]).clamp(true);
  const y = (node) => (node.y * height) / K;
  const colors = new Map();
  const mark = (node, color) => {
    colors.set(node, color);
    node.parts?.forEach((part) => mark(part, color));
  };
  cut(matrix.groups).forEach((node, group) => mark(node, groupColor(group)));
  svg.selectAll("path")
    .data(nodesOfTree.filter((node) => node.parts))
    .join("path")
    .classed("in-group", (node) => colors.has(node))
    .style("stroke", (node) => colors.get(node) ?? null)
    .attr("d", (node) => {
      const [a, b] = node.parts;
      return `M${x(a.height)},${y(a)}H${x(node.height)}V${y(b)}H${x(b.height)}`;
    });
  return svg.node();
}

// Number of first words of each topic that are candidates for the words of its group.
const WORDS_OF_MEMBER = 60;

/** Words of a group by the sum of p(word | topic) p(topic) over its topics. */
function wordsOfGroup(members, count) {
  const sums = new Map();
  for (const topic of members) {
    const end = Math.min(lists.starts[topic] + WORDS_OF_MEMBER, lists.starts[topic + 1]);
    for (let place = lists.starts[topic]; place < end; place++) {
      const id = lists.ids[place];
      sums.set(id, (sums.get(id) ?? 0) + lists.given[place] * topics[topic].share);
    }
  }
  return [...sums]
    .sort((a, b) => b[1] - a[1])
    .slice(0, count)
    .map(([id]) => lists.vocabulary[id]);
}

function drawGroups(section) {
  const place = section.querySelector(".merged");
  const value = element("output", { for: "merge-level" }, `${matrix.groups} groups`);
  const input = element("input", {
    type: "range",
    id: "merge-level",
    min: 1,
    max: K,
    value: matrix.groups,
    input: () => {
      matrix.groups = Number(input.value);
      value.textContent = `${matrix.groups} groups`;
      list.replaceChildren(...groupItems());
      const tree = section.querySelector("svg.tree");
      tree.replaceWith(drawTree(tree.clientWidth, tree.clientHeight));
      views.get("map").drawnFor = null; // its circles have the colors of the groups
    },
  });
  const list = element("ol", { class: "groups" }, ...groupItems());
  const label = element("label", { for: "merge-level" }, "Merge similar topics into");
  place.replaceChildren(element("div", { class: "controls" }, element("div", { class: "field" }, label, input, value)), list);
}

function groupItems() {
  return cut(matrix.groups).map(({ leaves }, group) => {
    const share = d3.sum(leaves, (topic) => topics[topic].share);
    const words = listed(wordsOfGroup(leaves, 8));
    const swatch = element("span", { class: "swatch of-group", style: `background: ${groupColor(group)}` });
    const members = leaves.map((topic) => topicButton(topic));
    return element("li", {}, element("p", {}, swatch, element("strong", {}, percent(share)), " ", ...words), element("div", {}, ...members));
  });
}
