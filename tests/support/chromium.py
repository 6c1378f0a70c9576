"""A real Chromium, and what is looked for in a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

needs_chromium = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="needs Debian's chromium and chromium-driver",
)

OVERLAPS = """
const texts = [...document.querySelectorAll('svg.plot text')]
  .map(t => [t.textContent, t.getBoundingClientRect()]).filter(([, r]) => r.width > 0);
const hits = [];
for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
  const [a, p] = texts[i], [b, q] = texts[j];
  if (p.left < q.right && q.left < p.right && p.top < q.bottom - 1 && q.top < p.bottom - 1)
    hits.push(a + ' / ' + b);
}
return [texts.length, hits];
"""

CUT_OFF = """
const width = document.documentElement.clientWidth;
const out = [...document.querySelectorAll('svg.plot text')]
  .map(t => [t.textContent, t.getBoundingClientRect()])
  .filter(([, r]) => r.width > 0 && (r.left < 0 || r.right > width)).map(([t]) => t);
return [document.documentElement.scrollWidth - width, out];
"""

SHOWN = """
const plots = [...document.querySelectorAll('svg.plot')];
return [plots.length, plots.filter(p => p.getBoundingClientRect().width > 0).length];
"""

WIDE_TABLES = """
return [...document.querySelectorAll('table')].filter(t => {
  const card = t.closest('section'), style = getComputedStyle(card);
  return t.getBoundingClientRect().right
    > card.getBoundingClientRect().right - parseFloat(style.paddingRight) + 1;
}).map(t => (t.caption || t.closest('section').querySelector('h1,h2') || t).textContent);
"""

BROKEN_NAMES = """
const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), broken = [];
let seen = 0;
while (nodes.nextNode()) for (const match of nodes.currentNode.data.matchAll(
    /(aws|gcp)(\\/[\\w.*-]+){3,4}/g)) {
  const range = document.createRange();
  range.setStart(nodes.currentNode, match.index);
  range.setEnd(nodes.currentNode, match.index + match[0].length);
  const tops = new Set([...range.getClientRects()].map(r => Math.round(r.top)));
  if (tops.size) seen += 1;
  if (tops.size > 1) broken.push(match[0]);
}
return [seen, broken];
"""
"""How many names of pools are shown, and those that go on in the next line."""

CONTRAST = """
const rgb = css => css.match(/[\\d.]+/g).slice(0, 3).map(Number);
const light = css => rgb(css).map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const back = e => { while (e) { const c = getComputedStyle(e).backgroundColor;
  if (!/rgba\\(.*, 0\\)|transparent/.test(c)) return c; e = e.parentElement; }
  return 'rgb(0,0,0)'; };
let worst = [99, ''];
const seen = 'h1,h2,p,dt,dd,td,th,li,strong,summary,a,button,label,span,pre,svg.plot text';
for (const e of document.querySelectorAll(seen)) {
  const style = getComputedStyle(e), svg = e.tagName === 'text';
  const [a, b] = [light(svg ? style.fill : style.color), light(back(e))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < worst[0]) worst = [ratio, e.tagName + ' ' + e.textContent.trim().slice(0, 40)];
}
return worst;
"""


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A browser with a profile of its own, until the block ends."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


def show(browser: Any, uri: str, width: int, scheme: str = "light") -> None:
    """Open an address in a window of this width and this colour scheme."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(uri)
