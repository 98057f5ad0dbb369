// SPDX-License-Identifier: MIT OR Apache-2.0
// What a reader would stumble over in a page of the site, as an object of lists of words. Evaluated by test_site.py.
(() => {
  const box = (x) => x.getBoundingClientRect();
  // A phone's window grows with what is too wide for it; this does not.
  const width = document.documentElement.clientWidth;
  const name = (x) => `${x.tagName.toLowerCase()} ${(x.textContent || '').trim().slice(0, 40)}`;
  const shown = (x) => box(x).width > 0 && box(x).height > 0;
  const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);
  const lap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  // What stands below something, and what stands beside the text
  const pairs = [
    ...all('article section > *, article li > *').filter((x) => x.nextElementSibling && shown(x.nextElementSibling))
      .map((x) => [x, x.nextElementSibling]),
    ...all('.sidebar-drawer, .toc-drawer').flatMap((x) => all('article').map((y) => [x, y]))
      .filter(([x]) => box(x).left >= 0 && box(x).right <= width),
  ].filter(([x, y]) => !['SPAN', 'CODE', 'A', 'EM', 'STRONG'].includes(x.tagName) && y.tagName !== 'A');
  const colour = (text) => text.match(/[\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((x) => x / 255).map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = (x) => {
    for (; x; x = x.parentElement) {
      const found = colour(getComputedStyle(x).backgroundColor);
      if (found.length < 4 || found[3] > 0) return light(found);
    }
    return 1;
  };
  const contrast = (x) => {
    const [a, b] = [light(colour(getComputedStyle(x).color)), paper(x)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  // One element of each kind: colours come from a style sheet.
  const kinds = new Map();
  for (const x of all('article p, article li, article a, article code, article pre span, article th, article td, nav a, .sidebar-tree a')) {
    const kind = `${x.tagName} ${x.className}`;
    if (!kinds.has(kind) && (x.textContent || '').trim()) kinds.set(kind, x);
  }
  return {
    title: document.title,
    headings: all('h1').length,
    first: (document.querySelector('article p') || {textContent: ''}).textContent,
    // Tables and code may scroll for themselves.
    scrolls: [document.documentElement, ...all('body *')].filter((x) => x.scrollWidth > x.clientWidth + 1 &&
      (x === document.documentElement || /auto|scroll|hidden/.test(getComputedStyle(x).overflowX)) &&
      !x.matches('.table-wrapper, pre, pre *, .sidebar-drawer *, .toc-drawer *, .visually-hidden')).map(name),
    wide: all('article *').filter((x) => box(x).right > width + 1 && !x.closest('.table-wrapper, pre')).map(name),
    overlaps: pairs.filter(([x, y]) => lap(box(x), box(y))).map(([x, y]) => `${name(x)} | ${name(y)}`),
    tiny: all('article p, article li, article td, article code, nav a').filter((x) => parseFloat(getComputedStyle(x).fontSize) < 9).map(name),
    faint: [...kinds].filter(([, x]) => contrast(x) < 4.5).map(([kind, x]) => `${kind}: ${name(x)} ${contrast(x).toFixed(2)}`),
    paper: paper(document.querySelector('article')),
  };
})()
