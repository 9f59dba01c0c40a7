"""Opens every page of the built site in headless Chromium, 390 and 1280 pixels wide, and reports faults.

    python docs/_website/check.py [--site site] [--screenshots FOLDER PAGE ...]

Faults are: a page wider than its window, an image that does not load, a link or an anchor that leads nowhere, a request
to another host, an error in the browser's log, a public name without an entry in the reference, a transform that the
search does not find, and lists or tables shown as text, since Python-Markdown is stricter than GitHub. Links to other
hosts are counted, not followed. It needs Chromium and chromedriver (Debian: `apt install chromium chromium-driver`) and
the packages of the group `docs`.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import reference  # noqa: E402

WIDTHS = {390: 844, 1280: 800}
#: Words to search for in the browser -> transforms that they must find in the gallery and in the reference.
SEARCHED = {"RandomResizedCrop": "RandomResizedCrop", "solarize": "RandomSolarize", "planckian": "PlanckianJitter"}
_BROWSERS = ("chromium", "google-chrome", "chrome", "chromium-browser")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # the site must work without other hosts
)
_FACTS = """
const done = arguments[0];
const loaded = new Promise(resolve => {  // on a busy machine chromedriver does not wait for it
  document.readyState === "complete" ? resolve() : addEventListener("load", resolve);
});
let images = [];
loaded.then(() => {
  images = [...document.images];
  for (const image of images) image.loading = "eager";
  return Promise.all(images.map(image => image.decode().catch(() => null)));
}).then(() => {
  const page = document.documentElement;
  const wide = [...document.querySelectorAll("article *")].filter(element => {
    if (element.getBoundingClientRect().right <= page.clientWidth + 1) return false;
    for (let box = element; box && box !== page; box = box.parentElement)
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(box).overflowX)) return false;
    return true;
  });
  const unrendered = [];
  for (const walker = document.createTreeWalker(document.querySelector("article") || page, NodeFilter.SHOW_TEXT);
       walker.nextNode();) {
    const node = walker.currentNode;
    if (/\\]\\(|`|^\\s*(- [A-Za-z]|\\| )/m.test(node.data) && !node.parentElement.closest("code, pre, script, style"))
      unrendered.push(node.data.trim().slice(0, 60));
  }
  done({
    unrendered: unrendered.slice(0, 3),
    overflow: Math.max(page.scrollWidth, document.body.scrollWidth) - page.clientWidth,
    wide: wide.slice(0, 3).map(element => element.outerHTML.slice(0, 100)),
    broken: images.filter(image => !image.naturalWidth).map(image => image.src),
    links: [...document.querySelectorAll("a[href]")].map(link => link.href),
    ids: [...document.querySelectorAll("[id]")].map(element => element.id),
    foreign: performance.getEntriesByType("resource").map(entry => entry.name)
      .filter(name => !name.startsWith(location.origin) && !name.startsWith("data:") && !name.startsWith("blob:")),
  });
});
"""


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path, default=ROOT / "site")
    parser.add_argument("--screenshots", nargs="+", metavar=("FOLDER", "PAGE"), help="save pictures of pages, and end")
    options = parser.parse_args()
    if not (options.site / "index.html").is_file():
        raise SystemExit(f"{options.site} holds no site: run `make docs` first")
    handler = functools.partial(_Handler, directory=str(options.site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    with tempfile.TemporaryDirectory() as profile:
        browser = open_browser(profile)
        try:
            if options.screenshots:
                folder, *pages = options.screenshots
                save_screenshots(browser, address, Path(folder), pages)
                return 0
            faults = check(browser, address, options.site)
        finally:
            browser.quit()
            server.shutdown()
    for fault in faults:
        print(fault)
    return 1 if faults else 0


def open_browser(profile: str) -> Any:
    binary = next(filter(None, map(shutil.which, _BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        raise SystemExit("Chromium or chromedriver is missing; Debian: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    browser.set_script_timeout(600)  # a busy machine decodes a page's images slowly
    return browser


def check(browser: Any, address: str, site: Path) -> list[str]:
    """All faults, each as a line."""
    pages = sorted(path.relative_to(site).as_posix() for path in site.glob("**/*.html"))
    faults: list[str] = []
    anchors: dict[str, set[str]] = {}
    links: dict[str, set[str]] = {}
    for page in pages:
        for width in WIDTHS:
            resize(browser, width)
            browser.get(f"{address}/{page}")
            facts = browser.execute_async_script(_FACTS)
            where = f"{page}, {width} pixels wide"
            if facts["overflow"] > 0 or facts["wide"]:
                faults.append(f"{where}: {facts['overflow']} pixels too wide: {facts['wide']}")
            faults += [f"{where}: Markdown as text: {text!r}" for text in facts["unrendered"]]
            faults += [f"{where}: image {image} does not load" for image in facts["broken"]]
            faults += [f"{where}: requests {name}" for name in facts["foreign"]]
            faults += [f"{where}: {entry['message']}" for entry in browser.get_log("browser")]
        anchors[page], links[page] = set(facts["ids"]), set(facts["links"])
    own = [(page, link) for page in pages for link in links[page] if link.startswith(address)]
    faults += [fault for page, link in own if (fault := dead(page, link, address, site, anchors))]
    faults += missing_names(anchors)
    faults += search(browser, address)
    others = {link for found in links.values() for link in found if not link.startswith(address)}
    print(f"{len(pages)} pages at {len(WIDTHS)} widths, {len(own)} links; not followed: {len(others)} to other hosts")
    return faults


def dead(page: str, link: str, address: str, site: Path, anchors: dict[str, set[str]]) -> str | None:
    """A fault if a link of the site leads nowhere."""
    parts = urlsplit(link)
    target = unquote(parts.path).lstrip("/") or "index.html"
    if target.endswith("/"):
        target += "index.html"
    if not (site / target).is_file():
        return f"{page}: dead link {link.removeprefix(address)}"
    if parts.fragment and target in anchors and unquote(parts.fragment) not in anchors[target]:
        return f"{page}: dead anchor {link.removeprefix(address)}"
    return None


def missing_names(anchors: dict[str, set[str]]) -> list[str]:
    """Faults for public names that no page of the reference documents."""
    faults = []
    for page, (_, package) in reference.PACKAGES.items():
        ids = anchors[f"reference/{page}.html"]
        names = [
            name for name in reference.public_names(package) if package != "cuaug" or name not in reference.MODULES
        ]
        faults += [f"reference/{page}.html: no {package}.{name}" for name in names if f"{package}.{name}" not in ids]
    return faults


def search(browser: Any, address: str) -> list[str]:
    """Faults for transforms that the site's search does not find in the gallery and in the reference."""
    resize(browser, max(WIDTHS))
    faults = []
    for word, name in SEARCHED.items():
        browser.get(f"{address}/index.html")
        browser.execute_script("document.querySelector('#__search').click()")
        field = browser.find_element(By.CSS_SELECTOR, "input.md-search__input")
        WebDriverWait(browser, 20).until(lambda _, field=field: field.is_displayed())
        field.send_keys(word)
        found = WebDriverWait(browser, 20).until(
            lambda driver: [
                urlsplit(link.get_attribute("href"))._replace(query="").geturl()
                for link in driver.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
            ]
        )
        for target in (f"gallery.html#{name.lower()}", f"reference/transforms.html#cuaug.transforms.{name}"):
            if f"{address}/{target}" not in found:
                faults.append(f"search for {word}: {target} is not among {found}")
    return faults


def resize(browser: Any, width: int) -> None:
    size = {"width": width, "height": WIDTHS[width], "deviceScaleFactor": 1, "mobile": width < 800}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def save_screenshots(browser: Any, address: str, folder: Path, pages: list[str]) -> None:
    """PAGE-WIDTH-SCHEME.png, of the first 2,000 pixels of each page."""
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        for page in pages:
            for width in WIDTHS:
                resize(browser, width)
                browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
                browser.get(f"{address}/{page}")
                browser.execute_script("localStorage.clear()")  # the scheme of the visit before
                browser.refresh()
                browser.execute_async_script(_FACTS)
                resized = {"width": width, "height": 2000, "deviceScaleFactor": 1, "mobile": width < 800}
                browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", resized)
                name = page.removesuffix(".html").replace("/", "-")
                browser.save_screenshot(str(folder / f"{name}-{width}-{scheme}.png"))


if __name__ == "__main__":
    sys.exit(main())
