// Adds to the page what it can do without: the switches of series,
// and what a pointer or the arrow keys point at.
(() => {
  "use strict";
  const $ = (selector, from = document) => [...from.querySelectorAll(selector)];
  for (const el of $(".scripted")) el.hidden = false;

  // What is pointed at is shown beside it, and said.
  const tip = document.getElementById("tip");
  const said = document.getElementById("said");
  let here = null;
  function unpoint() {
    if (here) here.classList.remove("here");
    here = null;
    tip.hidden = true;
  }
  function point(pt, aloud) {
    unpoint();
    here = pt;
    pt.classList.add("here");
    tip.textContent = pt.dataset.tip;
    tip.hidden = false;
    if (aloud) {
      pt.closest("figure").querySelector(".plot").scrollIntoView({ block: "nearest", behavior: "instant" });
      said.textContent = pt.dataset.tip;
    }
    place();
  }
  function place() {
    const at = here.getBoundingClientRect(), size = tip.getBoundingClientRect();
    const x = Math.min(Math.max(4, at.left + at.width / 2 - size.width / 2), innerWidth - size.width - 4);
    let y = at.top - size.height - 8;
    if (y < 4) y = at.bottom + 8;
    tip.style.left = x + "px";
    tip.style.top = y + "px";
  }

  // A legend's button hides its series in all charts of the panel.
  for (const button of $(".legend button")) {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", String(on));
      for (const g of $("svg [data-series]", button.closest(".panel"))) {
        if (g.dataset.series === button.dataset.series) g.classList.toggle("off", !on);
      }
      unpoint();
    });
  }

  const shown = (plot) => $(".pt[data-tip]", plot).filter((pt) => !pt.closest(".off"));

  for (const plot of $(".plot")) {
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", plot.closest("figure").querySelector("figcaption b").textContent + ": arrow keys go through the figures");
    // The native titles are for pages without this script.
    for (const t of $(".pt > title", plot)) t.remove();
    plot.addEventListener("pointermove", (event) => {
      let best = null, least = 26;
      for (const pt of shown(plot)) {
        const r = pt.getBoundingClientRect();
        const dx = Math.max(r.left - event.clientX, 0, event.clientX - r.right);
        const dy = Math.max(r.top - event.clientY, 0, event.clientY - r.bottom);
        const far = Math.hypot(dx, dy);
        if (far < least) { best = pt; least = far; }
      }
      if (!best) unpoint();
      else if (best !== here) point(best, false);
    });
    plot.addEventListener("pointerleave", unpoint);
    plot.addEventListener("blur", unpoint);
    plot.addEventListener("keydown", (event) => {
      const pts = shown(plot);
      if (!pts.length) return;
      const at = pts.indexOf(here);
      const series = (pt) => pt.closest("[data-series]") || pt.parentNode;
      let to;
      switch (event.key) {
        case "ArrowRight": to = at < 0 ? 0 : Math.min(at + 1, pts.length - 1); break;
        case "ArrowLeft": to = at < 0 ? pts.length - 1 : Math.max(at - 1, 0); break;
        case "ArrowDown":
          to = at < 0 ? 0 : pts.findIndex((pt, i) => i > at && series(pt) !== series(pts[at]));
          break;
        case "ArrowUp": {
          if (at < 0) { to = 0; break; }
          const i = pts.indexOf(pts.find((pt) => series(pt) === series(pts[at])));
          to = i > 0 ? pts.indexOf(pts.find((pt) => series(pt) === series(pts[i - 1]))) : -1;
          break;
        }
        case "Home": to = 0; break;
        case "End": to = pts.length - 1; break;
        case "Escape": unpoint(); return;
        default: return;
      }
      event.preventDefault();
      if (to >= 0) point(pts[to], true);
    });
  }
  addEventListener("scroll", () => { if (here) place(); }, { passive: true });

  // Print has all open but the charts' tables.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = $("details:not(.data):not([open])");
    for (const d of closed) d.open = true;
  });
  addEventListener("afterprint", () => { for (const d of closed) d.open = false; });
})();
