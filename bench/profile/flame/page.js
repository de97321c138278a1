(() => {
  const WIDTH = 1200, ROW = 18, CHAR = 7;
  const svg = document.querySelector('.flame');
  const says = document.getElementById('says');
  const reset = document.getElementById('reset');
  const frames = [...svg.querySelectorAll('.frame')].map(el => ({
    el, rect: el.querySelector('rect'), text: el.querySelector('text'),
    s: +el.dataset.s, w: +el.dataset.w, d: +el.dataset.d, name: el.dataset.n,
    says: el.getAttribute('aria-label'),
  }));
  const byElement = new Map(frames.map(f => [f.el, f]));
  let zoomed = frames[0];
  let current = frames[0];
  if (!current) return;

  // within: shares are rounded, so that a frame may seem to stand out of its caller.
  const within = (f, outer) => f.s >= outer.s - 1e-7 && f.s + f.w <= outer.s + outer.w + 1e-7;

  function zoom(to) {
    zoomed = to;
    for (const f of frames) {
      const above = f.d < to.d && within(to, f);
      const shown = above || (f.d >= to.d && within(f, to));
      f.el.style.display = shown ? '' : 'none';
      f.el.classList.toggle('above', above);
      if (!shown) continue;
      const x = above ? 0 : (f.s - to.s) / to.w * WIDTH;
      const w = above ? WIDTH : f.w / to.w * WIDTH;
      f.rect.setAttribute('x', x.toFixed(2));
      f.rect.setAttribute('width', Math.max(w - 0.5, 0.3).toFixed(2));
      f.text.setAttribute('x', (x + 3).toFixed(2));
      const room = Math.floor((w - 6) / CHAR);
      const letters = [...f.name];
      f.text.textContent = room < 3 ? '' : letters.length <= room ? f.name : letters.slice(0, room - 1).join('') + '…';
    }
    reset.hidden = to === frames[0];
  }

  // Only one frame is a stop of the Tab key; arrows go on from there.
  function focus(f) {
    current.el.tabIndex = -1;
    current = f;
    f.el.tabIndex = 0;
    f.el.focus();
  }

  const shown = f => f.el.style.display !== 'none';
  function neighbour(f, key) {
    const same = frames.filter(o => o.d === f.d && shown(o)).sort((a, b) => a.s - b.s);
    switch (key) {
      case 'ArrowUp': return frames.find(o => o.d === f.d - 1 && within(f, o));
      case 'ArrowDown': return frames.filter(o => o.d === f.d + 1 && within(o, f) && shown(o)).sort((a, b) => b.w - a.w)[0];
      case 'ArrowLeft': return same[same.indexOf(f) - 1];
      case 'ArrowRight': return same[same.indexOf(f) + 1];
      case 'Home': return frames[0];
    }
  }

  svg.addEventListener('keydown', e => {
    const f = byElement.get(e.target.closest('.frame'));
    if (!f) return;
    if (e.key === 'Enter' || e.key === ' ') {
      zoom(f);
      e.preventDefault();
      return;
    }
    const to = neighbour(f, e.key);
    if (to) {
      focus(to);
      e.preventDefault();
    }
  });
  svg.addEventListener('click', e => {
    const f = byElement.get(e.target.closest('.frame'));
    if (f) { zoom(f); focus(f); }
  });
  for (const event of ['focusin', 'mouseover']) {
    svg.addEventListener(event, e => {
      const f = byElement.get(e.target.closest('.frame'));
      if (f) says.textContent = f.says;
    });
  }
  document.addEventListener('keydown', e => {
    if (e.key === 'Escape' && zoomed !== frames[0]) zoom(frames[0]);
  });
  reset.addEventListener('click', () => { zoom(frames[0]); focus(frames[0]); });

  const search = document.getElementById('search');
  const found = document.getElementById('found');
  search.form.addEventListener('submit', e => e.preventDefault());
  search.addEventListener('input', () => {
    const what = search.value.trim().toLowerCase();
    let hits = 0;
    for (const f of frames) {
      const hit = what !== '' && f.says.toLowerCase().slice(0, f.says.indexOf(': ')).includes(what);
      f.el.classList.toggle('hit', hit);
      if (hit) hits++;
    }
    found.textContent = what === '' ? '' : hits + (hits === 1 ? ' frame' : ' frames');
  });
})();
