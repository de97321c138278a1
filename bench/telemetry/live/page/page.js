"use strict";

// The server renders the parts of the page. The script swaps those that changed.
const $ = id => document.getElementById(id);
const parts = {};
let over = false;

const source = new EventSource("updates");
source.onmessage = event => {
  const latest = JSON.parse(event.data);
  document.title = latest.title;
  for (const [id, html] of Object.entries(latest.parts)) {
    if (parts[id] === html) continue;
    parts[id] = html;
    const open = [...$(id).querySelectorAll("details")].map(d => d.open);
    $(id).replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
    $(id).querySelectorAll("details").forEach((d, i) => { d.open = Boolean(open[i]); });
  }
  $("state").classList.remove("down");
  over = latest.over;
};
source.onerror = () => {
  if (over) return; // The last update stays.
  delete parts.state;
  $("state").textContent = "watchlab does not answer; reconnecting.";
  $("state").classList.add("down");
};
