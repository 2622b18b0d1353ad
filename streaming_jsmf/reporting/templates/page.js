// Views of the page, the selected topic, and helpers that all charts use.

/** Create an element; attributes that are functions become event listeners, and strings become text nodes. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Text from a corpus, isolated from the writing direction of the text around it. */
const word = (text) => element("span", { class: "word", title: text }, text);

/** Words separated by commas. */
const listed = (texts) => texts.flatMap((text) => [word(text), ", "]).slice(0, -1);

/** The first characters (graphemes) of a text; marks isolate its writing direction in SVG, which has no <bdi>. */
const graphemes = Intl.Segmenter && new Intl.Segmenter(undefined, { granularity: "grapheme" });
function shortened(text, length) {
  // Segment a few hundred code units only, because texts can be long.
  const start = text.slice(0, 8 * length);
  const characters = graphemes ? [...graphemes.segment(start)].map((part) => part.segment) : [...start];
  // An ellipsis stands for three characters or more.
  const cut = characters.length > length + 2 || start.length < text.length;
  return `\u2068${cut ? `${characters.slice(0, length).join("")}…` : characters.join("")}\u2069`;
}

/** The first words of a name that fit in about `length` characters, each with its own writing direction. */
function fitting([first, ...others], length) {
  const shown = [shortened(first, length)];
  let room = length - first.length;
  for (const text of others) {
    room -= text.length + 2;
    if (room < 0) break;
    shown.push(shortened(text, length));
  }
  return shown.join(", ");
}

const nameOf = (topic, length) => fitting(topics[topic].name, length);

const topicTitle = (topic, length = 28) => `${topics[topic].number} ${nameOf(topic, length)}`;

const listeners = [];
let selected = null;

/** Call the listener whenever another topic is selected. */
function onSelect(listener) {
  listeners.push(listener);
}

function select(topic) {
  selected = topic;
  if (topic !== null) remember(`#topic-${topics[topic].number}`);
  for (const listener of listeners) listener(topic);
}

/** A button that selects a topic. */
function topicButton(topic) {
  return element(
    "button",
    { type: "button", class: "topic-button", click: () => select(topic) },
    element("span", { class: "number" }, String(topics[topic].number)),
    " ",
    element("span", { class: "word" }, nameOf(topic, 200)),
  );
}

const views = new Map();
let shownView = null;

/** Register a view, which is drawn when it is first shown, and again after its width or the color scheme has changed. */
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
  // What scrolls is reached by the keyboard.
  for (const box of view.section.querySelectorAll(".scroll")) box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
}

const dark = matchMedia("(prefers-color-scheme: dark)");

function show(name) {
  shownView = name;
  for (const [other, view] of views) {
    view.section.hidden = other !== name;
  }
  for (const link of document.querySelectorAll("nav.parts a")) {
    if (link.hash !== `#${name}`) {
      link.removeAttribute("aria-current");
      continue;
    }
    link.setAttribute("aria-current", "page");
    // On narrow pages the row of links scrolls.
    link.parentElement.scrollLeft = link.offsetLeft - link.parentElement.clientWidth / 2;
  }
  refresh(views.get(name));
}

/** Show the view or the topic that a URL fragment names; return whether there is one. */
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

/** Set the URL fragment. Pages without a URL of their own, as in notebooks, throw. */
function remember(hash) {
  try {
    history.replaceState(null, "", hash);
  } catch {
    /* the page works without it */
  }
}

const tooltip = element("div", { class: "tooltip", hidden: true, "aria-hidden": "true" });
document.body.append(tooltip);

/** Show lines of text next to a point of the window. */
function showTooltip(lines, x, y) {
  tooltip.replaceChildren(...lines.map((line, place) => element(place ? "p" : "strong", {}, line)));
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.max(8, Math.min(x + 14, innerWidth - width - 8));
  const top = y + 18 + height > innerHeight ? Math.max(8, y - height - 12) : y + 18;
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${top}px`;
}

function hideTooltip() {
  tooltip.hidden = true;
}

/** Tooltip of a topic. */
function linesOf(topic) {
  const { share, words } = topics[topic];
  return [
    `Topic ${topicTitle(topic, 40)}`,
    `${percent(share)} of the corpus`,
    words.map((text) => shortened(text, 24)).join(", "),
  ];
}

/** The value of a color variable of the style sheet. */
function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
