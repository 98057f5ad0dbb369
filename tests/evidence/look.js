// SPDX-License-Identifier: MIT OR Apache-2.0
// What a reader would stumble over in the page, as an object of lists of words. Evaluated by test_evidence_page.py.
(() => {
  const box = (x) => x.getBoundingClientRect();
  const name = (x) => `${x.tagName.toLowerCase()} ${(x.textContent || '').trim().slice(0, 40)}`;
  const shown = (x) => box(x).width > 0 && box(x).height > 0;
  // Letters do not fill their box.
  const lap = (a, b, slack) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > slack &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > slack;
  const pairs = (list, slack) => list.flatMap((a, i) => list.slice(i + 1)
    .filter((b) => lap(box(a), box(b), slack)).map((b) => `${name(a)} | ${name(b)}`));
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const plots = all('svg');
  const texts = (plot) => all('text', plot).filter(shown);
  const cut = (plot) => texts(plot).filter((x) => box(x).left < box(plot).left - 1.5 || box(x).right > box(plot).right + 1.5 ||
    box(x).top < box(plot).top - 1.5 || box(x).bottom > box(plot).bottom + 1.5).map(name);
  const size = (x) => {
    const plot = x.closest('svg');
    const scale = plot ? box(plot).width / plot.viewBox.baseVal.width : 1;
    return parseFloat(getComputedStyle(x).fontSize) * scale;
  };
  const light = (text) => {
    const [r, g, b] = text.match(/[\d.]+/g).slice(0, 3).map((x) => x / 255).map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const contrast = (colour) => {
    const other = light(colour);
    return (Math.max(paper, other) + 0.05) / (Math.min(paper, other) + 0.05);
  };
  const sample = document.createElement('span');
  document.body.append(sample);
  const contrasts = {};
  for (const variable of ['ink', 'muted', 'good', 'bad', 'c1', 'c2', 'c3', 'c4']) {
    sample.style.color = `var(--${variable})`;
    contrasts[variable] = contrast(getComputedStyle(sample).color);
  }
  sample.remove();
  const groups = ['header > *', 'main > *', 'footer', '.side', '.tiles > div', '.figures figure', 'nav > a', 'section > *'];
  return {
    title: document.title,
    plots: plots.length,
    empty: plots.filter((x) => !shown(x) || box(x).width < 150).map(name),
    headings: all('h2').filter(shown).map((x) => x.textContent),
    rows: all('tr').length,
    bad: all('.bad').map(name),
    scrolls: document.documentElement.scrollWidth - window.innerWidth,
    wide: all('body *').filter((x) => shown(x) && !x.closest('.wide') && box(x).right > window.innerWidth + 1).map(name),
    overlaps: [...groups.flatMap((x) => pairs(all(x).filter(shown), 1)), ...plots.flatMap((x) => pairs(texts(x), 1.5))],
    cut: plots.flatMap(cut),
    tiny: all('p, li, td, th, h1, h2, h3, b, span, a, summary, text').filter((x) => shown(x) && size(x) < 9).map(name),
    paper,
    contrasts,
    missing: Math.max(...all('.side').map((x) => box(x).top)),
    broken: all('nav a').filter((x) => !document.querySelector(x.getAttribute('href'))).map(name),
    requests: performance.getEntriesByType('resource').map((x) => x.name),
  };
})()
