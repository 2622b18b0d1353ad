// Parts of the page, which topic is selected, and small things that all charts use.

/** An element with attributes (functions are listeners) and children; text stays text. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Text from a corpus, apart from the direction of what is around it. */
const word = (text) => element("span", { class: "word", title: text }, text);

/** Words with commas between. */
const listed = (texts) => texts.flatMap((text) => [word(text), ", "]).slice(0, -1);

/** The first characters of a text, whole characters as a reader sees them; in charts directions are kept apart by marks. */
const graphemes = Intl.Segmenter && new Intl.Segmenter(undefined, { granularity: "grapheme" });
function shortened(text, length) {
  // A few hundred code units are enough to look at, however long the text is.
  const start = text.slice(0, 8 * length);
  const characters = graphemes ? [...graphemes.segment(start)].map((part) => part.segment) : [...start];
  const cut = characters.length > length || start.length < text.length;
  return `\u2068${characters.slice(0, length).join("")}${cut ? "…" : ""}\u2069`;
}

/** The words of a topic's name, each apart from the others' direction, as many characters as there is room for. */
function nameOf(topic, length) {
  const shown = [];
  let room = length;
  for (const text of topics[topic].name) {
    // A word that was cut says so itself.
    if (room < 2) return room < -2 ? shown.join(", ") : `${shown.join(", ")}…`;
    shown.push(shortened(text, room));
    room -= text.length + 2;
  }
  return shown.join(", ");
}

const topicTitle = (topic, length = 28) => `${topics[topic].number} ${nameOf(topic, length)}`;

const listeners = [];
let selected = null;

/** Run now and again whenever another topic is selected. */
function onSelect(listener) {
  listeners.push(listener);
}

function select(topic) {
  selected = topic;
  if (topic !== null) remember(`#topic-${topics[topic].number}`);
  for (const listener of listeners) listener(topic);
}

/** A button that selects a topic. */
function topicButton(topic, length) {
  return element(
    "button",
    { type: "button", class: "topic-button", click: () => select(topic) },
    element("span", { class: "number" }, String(topics[topic].number)),
    " ",
    element("span", { class: "word" }, nameOf(topic, length ?? 40)),
  );
}

const views = new Map();
let shownView = null;

/** A part of the page is drawn when it is first shown, and again when its width or the colours have changed. */
function registerView(name, draw) {
  const section = document.getElementById(name);
  if (section) views.set(name, { section, draw, drawnFor: null });
}

function appearance(view) {
  return `${view.section.clientWidth} ${dark.matches}`;
}

function refresh(view) {
  if (view.drawnFor === appearance(view)) return;
  view.drawnFor = appearance(view);
  view.draw(view.section);
}

const dark = matchMedia("(prefers-color-scheme: dark)");

function show(name) {
  shownView = name;
  for (const [other, view] of views) {
    view.section.hidden = other !== name;
  }
  for (const link of document.querySelectorAll("nav.parts a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  refresh(views.get(name));
}

/** What the address asks for: a part of the page, or a topic. */
function follow(hash) {
  const asked = /^#topic-(\d+)$/.exec(hash);
  const topic = asked ? places.get(Number(asked[1])) : undefined;
  if (topic !== undefined) {
    show(shownView ?? "overview");
    select(topic);
    return true;
  }
  if (views.has(hash.slice(1))) {
    show(hash.slice(1));
    return true;
  }
  return false;
}

/** A page without an address of its own, as in a notebook, cannot remember one. */
function remember(hash) {
  try {
    history.replaceState(null, "", hash);
  } catch {
    /* nothing is lost but the address */
  }
}

const tooltip = element("div", { class: "tooltip", hidden: true, "aria-hidden": "true" });
document.body.append(tooltip);

/** Show lines of text near a place of the window. */
function tell(lines, x, y) {
  tooltip.replaceChildren(...lines.map((line, place) => element(place ? "p" : "strong", {}, line)));
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.max(8, Math.min(x + 14, innerWidth - width - 8));
  const top = y + 18 + height > innerHeight ? Math.max(8, y - height - 12) : y + 18;
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${top}px`;
}

function untell() {
  tooltip.hidden = true;
}

/** What is told of a topic where a pointer rests on it. */
function linesOf(topic) {
  const { share, words } = topics[topic];
  return [
    `Topic ${topicTitle(topic, 40)}`,
    `${percent(share)} of the corpus`,
    words.map((text) => shortened(text, 24)).join(", "),
  ];
}

/** A colour of the page. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
