"use strict";

// The server renders the parts of the page. The script swaps those that changed.
const $ = id => document.getElementById(id);
const parts = {};
let source = null, latest = null, paused = false, over = false;

function say(text, down) {
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").classList.toggle("down", Boolean(down));
}

function show() {
  if (paused || !latest) return;
  document.title = latest.title;
  for (const [id, html] of Object.entries(latest.parts)) {
    if (parts[id] === html) continue;
    parts[id] = html;
    $(id).replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
  }
  $("state").classList.remove("down");
  over = latest.over;
}

function connect() {
  if (source) source.close();
  source = new EventSource("updates?group=" + encodeURIComponent($("groups").value));
  source.onmessage = event => {
    latest = JSON.parse(event.data);
    show();
  };
  source.onerror = () => {
    if (over) return; // The last update stays.
    delete parts.state;
    say("watchlab does not answer; reconnecting.", true);
  };
}

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  delete parts.state;
  say(paused ? "Paused; the run continues." : "Resumed.");
  show();
});

$("groups").addEventListener("change", connect);

const themes = ["system", "light", "dark"];
let theme = 0;
$("theme").addEventListener("click", () => {
  theme = (theme + 1) % themes.length;
  if (themes[theme] === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = themes[theme];
  $("theme").textContent = "Theme: " + themes[theme];
});

connect();
