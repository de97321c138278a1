"use strict";

// The page asks for the status twice a second, and keeps five minutes. A chart is at least half a minute wide.
const every = 500, kept = 600, narrowest = 60;

const samples = [];
let last = null, busy = false;

const $ = id => document.getElementById(id);
const svgNS = "http://www.w3.org/2000/svg";

function svg(name, attributes) {
  const e = document.createElementNS(svgNS, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  return e;
}

function significant(v) {
  if (v >= 100) return Math.round(v).toLocaleString("en");
  return String(Number(v.toPrecision(3)));
}

function text(v, unit) {
  if (v === null) return "–";
  const steps = {
    s: [[1, " s", 1], [1e-3, " ms", 1e-3], [0, " µs", 1e-6]],
    B: [[1 << 20, " MiB", 1 << 20], [1 << 10, " KiB", 1 << 10], [0, " B", 1]],
  }[unit];
  if (!steps || v === 0) return significant(v) + " " + unit;
  for (const [at, name, by] of steps) if (v >= at) return significant(v / by) + name;
}

function seconds(v) { return `${v.toFixed(1)} s`; }

function row(cells) {
  const tr = document.createElement("tr");
  cells.forEach((c, i) => {
    const e = document.createElement(i ? "td" : "th");
    if (!i) e.scope = "row";
    e.append(c);
    tr.append(e);
  });
  return tr;
}

function niceCeiling(v) {
  if (v <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(v));
  for (const step of [1, 2, 5, 10]) if (step * power >= v * 0.999) return step * power;
}

// A chart for each figure, in the order of the status.
const charts = new Map();
function chart(f) {
  if (!charts.has(f.name)) {
    const figure = document.createElement("figure"), caption = document.createElement("figcaption"), now = document.createElement("small");
    const e = svg("svg", {class: "chart", viewBox: "0 0 400 150", preserveAspectRatio: "none", role: "img"});
    const high = document.createElement("small");
    high.className = "quiet";
    caption.append(f.name, now);
    figure.append(caption, e, high);
    $("charts").append(figure);
    charts.set(f.name, {svg: e, now, high});
  }
  return charts.get(f.name);
}

function draw(f) {
  const c = chart(f);
  const values = samples.map(s => { const g = s.figures.find(g => g.name === f.name); return g ? g.value : null; });
  const known = values.filter(v => v !== null);
  const ceiling = niceCeiling(Math.max(0, ...known));
  const width = Math.max(samples.length, narrowest);
  const x = i => (width - samples.length + i) / (width - 1) * 400;
  const parts = [142, 14].map(y => svg("line", {class: "axis", x1: 0, x2: 400, y1: y, y2: y}));
  // A fault is in the sample that has it first.
  samples.forEach((s, i) => {
    if (i > 0 && s.faults.length > samples[i - 1].faults.length) parts.push(svg("line", {class: "fault", x1: x(i), x2: x(i), y1: 14, y2: 142}));
  });
  let path = "", before = false;
  values.forEach((v, i) => {
    if (v !== null) path += `${before ? "L" : "M"}${x(i).toFixed(1)} ${(142 - v / ceiling * 128).toFixed(1)}`;
    before = v !== null;
  });
  if (path) parts.push(svg("path", {class: "k0", d: path}));
  const now = values.length ? values[values.length - 1] : null;
  c.svg.replaceChildren(...parts);
  c.svg.setAttribute("aria-label", `${f.name}: ${text(now, f.unit)}`);
  c.now.textContent = text(now, f.unit);
  c.high.textContent = `0 to ${text(ceiling, f.unit)}`;
}

function show(s) {
  last = s;
  $("name").textContent = s.name;
  $("state").className = "";
  $("state").textContent = `${s.state[0].toUpperCase()}${s.state.slice(1)} at ${seconds(s.at)} of ${seconds(s.length)}`;
  $("events").textContent = s.events === 0 ? `· ${s.speed}× speed` : `· ${s.released.toLocaleString("en")} of ${s.events.toLocaleString("en")} events · ${s.speed}× speed`;
  const x = t => s.length > 0 ? Math.min(1, t / s.length) * 1000 : 0;
  $("line").replaceChildren(svg("rect", {class: "ground", x: 0, y: 4, width: 1000, height: 26}), svg("rect", {class: "done", x: 0, y: 4, width: x(s.at), height: 26}));
  $("line").setAttribute("aria-label", `${seconds(s.at)} of ${seconds(s.length)}`);
  const shown = s.faults.slice(-5).map(f => `${f.name} at ${seconds(f.at)}`).join(", ");
  $("faults").textContent = s.faults.length ? `Faults: ${s.faults.length > 5 ? `${s.faults.length - 5} more, ` : ""}${shown}` : "";
  $("transport").hidden = !s.control;
  $("hold").textContent = s.state === "paused" ? "Resume" : "Pause";
  $("hold").setAttribute("aria-pressed", String(s.state === "paused"));
  if (document.activeElement !== $("speed")) {
    if (![...$("speed").options].some(o => Number(o.value) === s.speed)) $("speed").append(new Option(String(s.speed)));
    $("speed").value = [...$("speed").options].find(o => Number(o.value) === s.speed).value;
  }
  $("judged").hidden = s.plays.length === 0;
  $("plays").replaceChildren(...s.plays.map(p => {
    const verdict = document.createElement("span");
    verdict.className = p.failed ? "invalid" : "valid";
    verdict.textContent = p.verdict;
    return row([p.name, verdict]);
  }));
  const groups = new Map();
  for (const w of s.watches) {
    const key = `${w.client} ${w.resource}`, g = groups.get(key) || {...w, n: 0, events: 0, bytes: 0};
    groups.set(key, {...g, n: g.n + 1, events: Math.max(g.events, w.events), bytes: Math.max(g.bytes, w.bytes)});
  }
  $("watches").replaceChildren(...[...groups.values()].map(g => row([g.client || "–", g.resource, String(g.n), g.events.toLocaleString("en"), text(g.bytes, "B")])));
  for (const f of s.figures) draw(f);
}

async function poll() {
  try {
    const answer = await fetch("status", {cache: "no-store"});
    const s = await answer.json();
    samples.push(s);
    if (samples.length > kept) samples.shift();
    show(s);
  } catch {
    $("state").className = "down";
    $("state").textContent = "watchlab does not answer.";
  }
  setTimeout(poll, every);
}

async function control(what, body) {
  if (busy) return;
  busy = true;
  try {
    const answer = await fetch(what, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
    const s = await answer.json();
    $("error").textContent = s.error || "";
    if (!s.error) show(s);
  } catch {
    $("error").textContent = "watchlab does not answer.";
  }
  busy = false;
}

$("hold").addEventListener("click", () => control(last && last.state === "paused" ? "resume" : "pause", {}));
for (const b of document.querySelectorAll("[data-step]")) b.addEventListener("click", () => control("step", {events: Number(b.dataset.step)}));
$("seek").addEventListener("submit", event => { event.preventDefault(); control("seek", {at: Number($("at").value)}); });
$("speed").addEventListener("change", () => control("speed", {speed: Number($("speed").value)}));
poll();
