"use strict";

// The page asks for the status twice a second.
const every = 500;

let last = null, busy = false;

const $ = id => document.getElementById(id);
const svgNS = "http://www.w3.org/2000/svg";

function svg(name, attributes) {
  const e = document.createElementNS(svgNS, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  return e;
}

function bytes(v) {
  for (const [at, name] of [[1 << 20, " MiB"], [1 << 10, " KiB"]]) if (v >= at) return `${Number((v / at).toPrecision(3))}${name}`;
  return `${v} B`;
}

function seconds(v) { return `${v.toFixed(1)} s`; }

function figure(f) {
  if (f.value === null) return "–";
  if (f.unit === "s") return f.value < 1 ? `${Number((f.value * 1000).toPrecision(3))} ms` : `${Number(f.value.toPrecision(3))} s`;
  return f.unit === "B" ? bytes(Number(f.value.toPrecision(3))) : `${f.value.toLocaleString("en")} ${f.unit}`;
}

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
  $("watches").replaceChildren(...[...groups.values()].map(g => row([g.client || "–", g.resource, String(g.n), g.events.toLocaleString("en"), bytes(g.bytes)])));
  $("figures").replaceChildren(...(s.figures || []).map(f => row([f.name, figure(f)])));
}

async function poll() {
  try {
    const answer = await fetch("status", {cache: "no-store"});
    const s = await answer.json();
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
