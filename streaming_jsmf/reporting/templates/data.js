// The data of the page: JSON from the element #data, with arrays of numbers decoded.

const data = JSON.parse(document.getElementById("data").textContent);
const STEPS = 1024;
const ZERO = 65535;

/** Decode base64 of little-endian integers of 2 or 4 bytes. */
function unpacked(text, bytes = 2) {
  const raw = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const view = new DataView(raw.buffer);
  const values = new (bytes === 2 ? Uint16Array : Uint32Array)(raw.length / bytes);
  for (let place = 0; place < values.length; place++) {
    values[place] = bytes === 2 ? view.getUint16(2 * place, true) : view.getUint32(4 * place, true);
  }
  return values;
}

/** Decode probabilities, which are stored as logarithms. */
function probabilities(text) {
  return Float64Array.from(unpacked(text), (step) => (step === ZERO ? 0 : 2 ** (-step / STEPS)));
}

// The scripts refer to a topic by its index in this array. The number that readers see differs if topics are hidden or merged.
const topics = data.topics.map((topic) => ({ warnings: [], characteristic: [], frex: [], ...topic }));
const K = topics.length;
const places = new Map(topics.map(({ number }, place) => [number, place]));

const lists = {
  vocabulary: data.words.vocabulary,
  probability: probabilities(data.words.probability),
  ids: unpacked(data.words.ids, data.words.bytes),
  given: probabilities(data.words.probabilities),
  starts: data.words.counts.reduce((starts, count) => [...starts, starts.at(-1) + count], [0]),
};

/** Words of a topic by descending relevance (Sievert and Shirley 2014): log p(w | t) - (1 - lambda) log p(w). */
function relevantWords(topic, lambda) {
  const found = [];
  for (let place = lists.starts[topic]; place < lists.starts[topic + 1]; place++) {
    const id = lists.ids[place];
    const given = lists.given[place];
    const overall = lists.probability[id];
    const relevance = Math.log(given) - (1 - lambda) * Math.log(overall);
    // Share of the topic in all uses of the word: p(t | w).
    const own = Math.min(1, (given * topics[topic].share) / overall);
    found.push({ text: lists.vocabulary[id], given, overall, own, relevance });
  }
  return found.sort((a, b) => b.relevance - a.relevance);
}

/** Inverted index of the lists: the entries of each word, one word after the other, and where each word starts. */
let index = null;
function topicsOfWord(id) {
  index ??= indexed();
  const found = [];
  for (let place = index.starts[id]; place < index.starts[id + 1]; place++) {
    const { topic, listed } = index.entries[place];
    const given = lists.given[listed];
    const own = Math.min(1, (given * topics[topic].share) / lists.probability[id]);
    found.push({ topic, given, own });
  }
  return found.sort((a, b) => b.own - a.own || a.topic - b.topic);
}

function indexed() {
  const starts = new Uint32Array(lists.vocabulary.length + 1);
  for (const id of lists.ids) starts[id + 1]++;
  for (let id = 0; id < lists.vocabulary.length; id++) starts[id + 1] += starts[id];
  const next = starts.slice();
  const entries = new Array(lists.ids.length);
  for (let topic = 0; topic < K; topic++) {
    for (let listed = lists.starts[topic]; listed < lists.starts[topic + 1]; listed++) {
      entries[next[lists.ids[listed]]++] = { topic, listed };
    }
  }
  return { starts, entries };
}

const alike = Float64Array.from(unpacked(data.alike), (value) => value / ZERO);
const together = data.together && {
  given: probabilities(data.together.given),
  ratio: Float64Array.from(unpacked(data.together.ratio), (step) => 2 ** (step / STEPS - 16)),
};

const withNumbers = (groups) => ({ ...groups, shares: probabilities(groups.shares), errors: probabilities(groups.errors) });

/** Groups of documents by a column, and views by further columns, each of which is drawn alike. */
const groups = data.groups && withNumbers(data.groups);
const groupViews = [...(groups ? [groups] : []), ...data.views.map(withNumbers)];

/** Mean share of a topic in a group and its standard error, which is null for a single document. */
const meanOf = (topic, group, of = groups) => ({
  name: of.names[group],
  documents: of.documents[group],
  few: of.few[group],
  share: of.shares[group * K + topic],
  error: of.documents[group] > 1 ? of.errors[group * K + topic] : null,
});

const meansOf = (topic, of = groups) => of.names.map((_, group) => meanOf(topic, group, of));

/** The means of all groups, or of the periods, without the group of documents that have no date. */
const courseOf = (topic, of = groups) => meansOf(topic, of).slice(0, of.drawn);

/** A fraction as a percentage with two significant digits. */
function percent(share) {
  const size = Math.abs(share);
  if (size > 0 && size < 0.00001) return "<0.001%";
  const digits = size >= 0.0995 ? 0 : size >= 0.00995 ? 1 : size >= 0.000995 ? 2 : size >= 0.0000995 ? 3 : null;
  return digits === null ? `${Number((100 * share).toPrecision(2))}%` : `${(100 * share).toFixed(digits)}%`;
}
