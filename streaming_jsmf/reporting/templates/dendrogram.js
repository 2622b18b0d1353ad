// The tree of what is alike, and the groups of topics that a cut through it makes.

/** Where each branch of the tree lies: the middle of its leaves, and the height at which they were merged. */
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

/** The branches that a cut into so many groups leaves, in the order of the leaves. */
function cut(count) {
  const merged = nodesOfTree.slice(0, 2 * K - count);
  const inside = new Set(merged.flatMap((node) => node.parts ?? []));
  return merged.filter((node) => !inside.has(node)).sort((a, b) => a.y - b.y);
}

function drawTree(width, height) {
  const svg = drawing(width, height, "Tree of the topics by similarity of their words").attr("class", "tree");
  if (!width || K === 1) return svg.node();
  // From the first merge on: the way there is long, and says nothing.
  const { 0: least, [K - 2]: most } = data.tree.heights;
  const x = d3.scaleLinear([least - (most - least) / 4 - 1e-9, most], [width - 2, 4]).clamp(true);
  const y = (node) => (node.y * height) / K;
  const groupsNow = new Set(cut(matrix.groups));
  const inGroup = new Set();
  const mark = (node) => {
    inGroup.add(node);
    node.parts?.forEach(mark);
  };
  groupsNow.forEach(mark);
  svg.selectAll("path")
    .data(nodesOfTree.filter((node) => node.parts))
    .join("path")
    .classed("in-group", (node) => inGroup.has(node))
    .attr("d", (node) => {
      const [a, b] = node.parts;
      return `M${x(a.height)},${y(a)}H${x(node.height)}V${y(b)}H${x(b.height)}`;
    });
  return svg.node();
}

// First words of each topic among which those of its group are looked for.
const WORDS_OF_MEMBER = 60;

/** The words that carry a group: p(word | topic) p(topic) summed over the first words of its topics. */
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
    },
  });
  const list = element("ol", { class: "groups" }, ...groupItems());
  const label = element("label", { for: "merge-level" }, "Merge what is alike into");
  place.replaceChildren(element("div", { class: "controls" }, element("div", { class: "field" }, label, input, value)), list);
}

function groupItems() {
  return cut(matrix.groups).map(({ leaves }) => {
    const share = d3.sum(leaves, (topic) => topics[topic].share);
    const words = listed(wordsOfGroup(leaves, 8));
    const members = leaves.map((topic) => topicButton(topic, 24));
    return element("li", {}, element("p", {}, element("strong", {}, percent(share)), " ", ...words), element("div", {}, ...members));
  });
}
