// Measures the page it stands in, and tells the frame around it.
const number = text => text.match(/[\d.]+/g).map(Number);
const colour = text => { const [r, g, b, a = 1] = number(text); return [r, g, b, a]; };
const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3]));
const luminance = c => {
  const [r, g, b] = c.slice(0, 3).map(v => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
// What is painted behind an element: the backgrounds from the root inwards.
const ground = element => {
  const layers = [];
  for (let e = element; e; e = e.parentElement) layers.push(colour(getComputedStyle(e).backgroundColor));
  return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
};
const name = e => `${e.tagName.toLowerCase()}.${e.getAttribute('class') ?? ''} "${e.textContent.trim().slice(0, 30)}"`;

// Text that the reader sees: WCAG 2.2 asks for a contrast of 4.5, of 3 for large text.
const faint = [];
for (const e of document.querySelectorAll('body *')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  if (!own || !e.getClientRects().length || e.closest('.sr, .skip, script, style')) continue;
  const style = getComputedStyle(e), size = parseFloat(style.fontSize);
  const paint = e instanceof SVGElement ? style.fill : style.color;
  if (!paint.startsWith('rgb')) continue;
  const behind = ground(e), [a, b] = [luminance(over(colour(paint), behind)), luminance(behind)];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
  if (contrast < (large ? 3 : 4.5)) faint.push(`${name(e)} ${contrast.toFixed(2)}`);
}

const all = selector => [...document.querySelectorAll(selector)];
const scrolls = e => e.scrollWidth > e.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(e).overflowX);
const levels = all('h1, h2, h3, h4').map(h => Number(h.tagName[1]));
const ids = all('[id]').map(e => e.id);
parent.postMessage(JSON.stringify({
  page_width: document.documentElement.clientWidth,
  content_width: document.documentElement.scrollWidth,
  sticking_out: all('body *').filter(e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1).map(name).slice(0, 5),
  dark: luminance(ground(document.body)) < 0.2,
  faint: [...new Set(faint)].slice(0, 20),
  plots: all('svg').length,
  empty_plots: all('svg').filter(s => s.getBoundingClientRect().width < 100 || s.getBoundingClientRect().height < 40).map(name),
  nameless_plots: all('svg').filter(s => !s.getAttribute('aria-label')).length,
  fetched: performance.getEntriesByType('resource').map(r => r.name),
  first_stop: all('a[href], button, summary, [tabindex="0"]')[0]?.className ?? '',
  unreachable: all('body *').filter(e => scrolls(e) && e.tabIndex < 0).map(name),
  skipped_levels: levels.filter((l, i) => i && l > levels[i - 1] + 1).length,
  repeated_ids: ids.filter((id, i) => ids.indexOf(id) !== i),
  dead_links: all('a[href^="#"]').filter(a => !document.getElementById(a.hash.slice(1))).map(a => a.hash),
  headless_tables: all('table').filter(t => !t.querySelector('th[scope]')).map(name),
}), '*');
