"use strict";

// One sample arrives per second. A chart keeps two minutes and is at least half a minute
// wide.
const kept = 120, narrowest = 30;

// The charts. A value of null is a gap.
const charts = [
  {id: "handled", title: "Events handled", unit: "per second", of: v => v.handledPerSecond, text: count},
  {id: "p99", title: "End-to-end latency, p99", unit: "from the intended release; none for unpaced cells", of: v => v.latencyP99, text: time},
  {id: "p50", title: "End-to-end latency, median", unit: "from the intended release; none for unpaced cells", of: v => v.latencyP50, text: time},
  {id: "depth", title: "Queue depth", unit: "events", of: v => v.queueDepth, text: count},
  {id: "bytes", title: "Queued bytes", unit: "as JSON", of: v => v.queueBytes, text: bytes},
  {id: "lag", title: "Generator lag, p99", unit: "actual after intended release", of: v => v.generatorLagP99, text: time},
  {id: "batch", title: "Batch size", unit: "mean number of deltas", of: v => v.batchSize, text: count},
  {id: "perEvent", title: "Deltas per event", unit: "all plays so far; below 1: events are coalesced", of: v => v.deltasPerEvent, text: count},
  {id: "stale", title: "Staleness, p99", unit: "events that the store is behind at a look-up", of: v => v.stalenessP99, text: count},
  {id: "heap", title: "Heap", unit: "heap objects of the process", whole: s => s.heapBytes, text: bytes},
];

const samples = [];
let paused = false;
let chosen = "";

const $ = id => document.getElementById(id);
const svgNS = "http://www.w3.org/2000/svg";

function element(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

function svg(name, attributes) {
  const e = document.createElementNS(svgNS, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  return e;
}

function significant(v) {
  if (v === 0) return "0";
  if (v >= 100) return Math.round(v).toLocaleString("en");
  return String(Number(v.toPrecision(3)));
}

function scaled(v, steps) {
  if (v === null || v === undefined) return "–";
  for (const [at, name, by] of steps) if (v >= at) return significant(v / by) + name;
  return significant(v / steps[steps.length - 1][2]) + steps[steps.length - 1][1];
}

function count(v) { return scaled(v, [[1e6, " M", 1e6], [1e4, " k", 1e3], [0, "", 1]]); }
function bytes(v) { return scaled(v, [[1e9, " GB", 1e9], [1e6, " MB", 1e6], [1e3, " kB", 1e3], [0, " B", 1]]); }
function time(v) {
  if (v === 0) return "0 s";
  return scaled(v, [[1, " s", 1], [1e-3, " ms", 1e-3], [0, " µs", 1e-6]]);
}

// A cell may start and end within one sample.
function active(v) { return v.phase !== "idle" || v.releasedPerSecond > 0 || v.handledPerSecond > 0; }

// A cell is a variant at a rate.
function cell(v) { return `${v.name} ${v.rate}`; }

// A cell keeps the colour of its place.
const places = new Map();
function place(name) {
  if (!places.has(name)) places.set(name, places.size);
  return places.get(name);
}
function look(name) {
  const n = place(name);
  return `k${n % 8} d${Math.floor(n / 8) % 4}`;
}

// The displayed group: the selected one, else the one played last.
let playing = "";
function group(sample) {
  const now = sample.variants.find(v => v.phase !== "idle");
  if (now) playing = now.group;
  if (chosen) return chosen;
  return playing || (sample.variants[0] ? sample.variants[0].group : "");
}

function build() {
  for (const c of charts) {
    const chart = svg("svg", {class: "chart", viewBox: "0 0 400 150", preserveAspectRatio: "none", role: "img", id: "chart-" + c.id});
    const figure = element("figure", {id: "figure-" + c.id});
    figure.append(element("figcaption", {}, c.title, element("small", {}, c.unit)), chart, element("ul", {class: "legend"}));
    $("charts").append(figure);
    c.svg = chart;
    c.legend = figure.querySelector("ul");
  }
}

// niceCeiling returns a round number of at least v.
function niceCeiling(v) {
  if (v <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(v));
  for (const step of [1, 2, 5, 10]) if (step * power >= v * 0.999) return step * power;
  return 10 * power;
}

function draw(c, shown) {
  const lines = new Map();
  samples.forEach((s, i) => {
    if (c.whole) {
      push(lines, "process", i, c.whole(s));
      return;
    }
    for (const v of s.variants) if (v.group === shown) push(lines, cell(v), i, active(v) ? c.of(v) : null);
  });
  let top = 0;
  for (const points of lines.values()) for (const [, v] of points) if (v !== null && v > top) top = v;
  const ceiling = niceCeiling(top);
  const width = Math.max(samples.length, narrowest);
  const x = i => ((width - samples.length + i) / (width - 1)) * 400;
  const y = v => 142 - (v / ceiling) * 128;
  const parts = [
    svg("line", {class: "axis", x1: 0, x2: 400, y1: 142, y2: 142}),
    svg("line", {class: "axis", x1: 0, x2: 400, y1: 14, y2: 14}),
  ];
  const said = [];
  const legend = [];
  for (const [name, points] of lines) {
    const known = points.filter(([, v]) => v !== null && v !== undefined);
    if (!known.length) continue;
    const kind = c.whole ? "k0 d0" : look(name);
    let path = "", before = -2;
    for (const [i, v] of known) {
      const lone = !known.some(([j]) => j === i - 1 || j === i + 1);
      if (lone) parts.push(svg("circle", {class: kind, cx: x(i).toFixed(1), cy: y(v).toFixed(1), r: 1.8}));
      path += (before === i - 1 ? "L" : "M") + x(i).toFixed(1) + " " + y(v).toFixed(1);
      before = i;
    }
    parts.push(svg("path", {class: kind, d: path, "data-variant": name}));
    const last = c.text(known[known.length - 1][1]);
    said.push(`${name} ${last}`);
    const sign = svg("svg", {viewBox: "0 0 26 8", "aria-hidden": "true"});
    sign.append(svg("path", {class: kind, d: "M0 4H26"}));
    legend.push(element("li", {}, sign, c.whole ? last : `${name} ${last}`));
  }
  c.svg.replaceChildren(...parts);
  c.svg.setAttribute("aria-label", said.length ? `${c.title}: last ${said.join(", ")}; the scale ends at ${c.text(ceiling)}` : `${c.title}: no value`);
  if (said.length) legend.push(element("li", {class: "quiet"}, `scale to ${c.text(ceiling)}`));
  else legend.push(element("li", {class: "quiet"}, "no value"));
  c.legend.replaceChildren(...legend);
}

function push(lines, name, i, v) {
  if (!lines.has(name)) lines.set(name, []);
  lines.get(name).push([i, v === undefined ? null : v]);
}

// lastOf returns the newest figure of a cell that is not null.
function lastOf(name, shown, of) {
  for (let i = samples.length - 1; i >= 0; i--) {
    const v = samples[i].variants.find(v => v.group === shown && cell(v) === name);
    if (v && active(v) && of(v) !== null) return of(v);
  }
  return null;
}

function table(sample, shown) {
  const rows = [];
  for (const v of sample.variants) {
    if (v.group !== shown) continue;
    const verdict = element("td", {class: v.verdict.split(":")[0]}, v.verdict || "–");
    const cells = [
      element("th", {scope: "row"}, v.name), element("td", {}, v.rate), element("td", {}, v.phase), verdict, element("td", {}, String(v.rounds)),
      element("td", {}, count(lastOf(cell(v), shown, v => v.handledPerSecond))),
      element("td", {}, time(lastOf(cell(v), shown, v => v.latencyP50))),
      element("td", {}, time(lastOf(cell(v), shown, v => v.latencyP99))),
      element("td", {}, count(v.queueDepth)),
    ];
    rows.push(element("tr", v.phase === "idle" ? {} : {class: "playing"}, ...cells));
  }
  $("now").tBodies[0].replaceChildren(...rows);
  $("caption").textContent = shown || "No cell has started.";
}

function groups(sample) {
  const select = $("group");
  const have = new Set([...select.options].map(o => o.value));
  for (const v of sample.variants) {
    if (have.has(v.group)) continue;
    have.add(v.group);
    select.append(element("option", {value: v.group}, v.group));
  }
}

let announced = "";
function state(text, down) {
  if (text === announced) return;
  announced = text;
  $("state").textContent = text;
  $("state").classList.toggle("down", Boolean(down));
}

function show() {
  const sample = samples[samples.length - 1];
  if (!sample) return;
  const shown = group(sample);
  for (const v of sample.variants) if (v.group === shown) place(cell(v));
  groups(sample);
  $("run").textContent = sample.run;
  document.title = `${Math.floor(sample.progress * 100)} % · watchlab ${sample.run}`;
  $("progress").value = sample.progress;
  $("percent").textContent = `${Math.floor(sample.progress * 100)} %`;
  table(sample, shown);
  for (const c of charts) draw(c, shown);
  if (paused) return;
  const now = sample.variants.filter(v => v.phase !== "idle").map(cell);
  // Not in the status region: screen readers would announce several cells a second.
  $("playing").textContent = now.length ? `Playing ${now.join(", ")}.` : "";
  state(sample.progress >= 1 ? "The run has finished." : "Live, one sample per second.");
}

function connect() {
  const source = new EventSource("samples");
  source.onmessage = event => {
    const sample = JSON.parse(event.data);
    samples.push(sample);
    if (samples.length > kept) samples.shift();
    if (!paused) show();
  };
  source.onerror = () => state("watchlab does not answer; reconnecting.", true);
}

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  state(paused ? "Paused; samples are still collected." : "Resumed.");
  if (!paused) show();
});

$("group").addEventListener("change", event => {
  chosen = event.target.value;
  show();
});

const themes = ["system", "light", "dark"];
let theme = 0;
$("theme").addEventListener("click", () => {
  theme = (theme + 1) % themes.length;
  if (themes[theme] === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = themes[theme];
  $("theme").textContent = "Theme: " + themes[theme];
});

build();
connect();
