"use strict";

// Samples come once a second; each chart keeps two minutes of them, and is half a
// minute wide until it has more.
const kept = 120, narrowest = 30;

// The charts. A value of null is a gap.
const charts = [
  {id: "handled", title: "Events handled", unit: "per second", of: v => v.handledPerSecond, text: count},
  {id: "p99", title: "End-to-end latency, p99", unit: "from when an event was meant to be released, else from its release", of: v => v.latencyP99, text: time},
  {id: "p50", title: "End-to-end latency, median", unit: "half of the events were faster", of: v => v.latencyP50, text: time},
  {id: "depth", title: "Queue depth", unit: "what waits", of: v => v.queueDepth, text: count},
  {id: "bytes", title: "Queued bytes", unit: "as JSON", of: v => v.queueBytes, text: bytes},
  {id: "lag", title: "Generator lag, p99", unit: "how late events were released", of: v => v.generatorLagP99, text: time},
  {id: "batch", title: "Batch size", unit: "mean of a hand-over", of: v => v.batchSize, text: count},
  {id: "perEvent", title: "Deltas out per event in", unit: "below 1 where events are coalesced", of: v => v.deltasPerEvent, text: count},
  {id: "stale", title: "Staleness, p99", unit: "events behind when the worker looked", of: v => v.stalenessP99, text: count},
  {id: "heap", title: "Heap", unit: "objects of the whole process", whole: s => s.heapBytes, text: bytes},
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

// A cell may be over within the second that a sample tells of.
function active(v) { return v.phase !== "idle" || v.releasedPerSecond > 0 || v.handledPerSecond > 0; }

// The variants' places decide their colours, so that a variant keeps its own.
const places = new Map();
function place(name) {
  if (!places.has(name)) places.set(name, places.size);
  return places.get(name);
}
function look(name) {
  const n = place(name);
  return `k${n % 8} d${Math.floor(n / 8) % 4}`;
}

// The group that is shown: the one chosen, else the one that is or was last
// played.
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

// niceCeiling is a round number not below v.
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
    for (const v of s.variants) if (v.group === shown) push(lines, v.name, i, active(v) ? c.of(v) : null);
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
  c.svg.setAttribute("aria-label", said.length ? `${c.title}: last ${said.join(", ")}; the scale ends at ${c.text(ceiling)}` : `${c.title}: nothing yet`);
  if (said.length) legend.push(element("li", {class: "quiet"}, `scale to ${c.text(ceiling)}`));
  else legend.push(element("li", {class: "quiet"}, "nothing yet"));
  c.legend.replaceChildren(...legend);
}

function push(lines, name, i, v) {
  if (!lines.has(name)) lines.set(name, []);
  lines.get(name).push([i, v === undefined ? null : v]);
}

// lastOf looks for a variant's newest figure that is not null.
function lastOf(name, shown, of) {
  for (let i = samples.length - 1; i >= 0; i--) {
    const v = samples[i].variants.find(v => v.group === shown && v.name === name);
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
      element("th", {scope: "row"}, v.name), element("td", {}, v.phase), verdict, element("td", {}, String(v.rounds)),
      element("td", {}, count(lastOf(v.name, shown, v => v.handledPerSecond))),
      element("td", {}, time(lastOf(v.name, shown, v => v.latencyP50))),
      element("td", {}, time(lastOf(v.name, shown, v => v.latencyP99))),
      element("td", {}, count(v.queueDepth)),
    ];
    rows.push(element("tr", v.phase === "idle" ? {} : {class: "playing"}, ...cells));
  }
  $("now").tBodies[0].replaceChildren(...rows);
  $("caption").textContent = shown || "Nothing is played yet.";
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
  for (const v of sample.variants) if (v.group === shown) place(v.name);
  groups(sample);
  $("run").textContent = sample.run;
  document.title = `${Math.floor(sample.progress * 100)} % · watchlab ${sample.run}`;
  $("progress").value = sample.progress;
  $("percent").textContent = `${Math.floor(sample.progress * 100)} %`;
  table(sample, shown);
  for (const c of charts) draw(c, shown);
  if (paused) return;
  const now = sample.variants.filter(v => v.phase !== "idle").map(v => v.name);
  // Cells change several times a second, which nobody wants to be told aloud.
  $("playing").textContent = now.length ? `${now.join(", ")} is played.` : "";
  state(sample.progress >= 1 ? "The run is over." : "Live, a sample a second.");
}

function connect() {
  const source = new EventSource("samples");
  source.onmessage = event => {
    const sample = JSON.parse(event.data);
    samples.push(sample);
    if (samples.length > kept) samples.shift();
    if (!paused) show();
  };
  source.onerror = () => state("The command doesn't answer; trying again.", true);
}

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  state(paused ? "Paused; samples go on being collected." : "Going on.");
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
