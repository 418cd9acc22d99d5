"""The page in a real browser: no complaint, no request, no horizontal scrolling, readable colors."""

from __future__ import annotations

import pytest
from helpers.chromium import chromium, find_chromium
from helpers.pictures import encode, photo

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="needs Chromium or Chrome")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.fixture(scope="module")
def page(tmp_path_factory, dataprep):
    """A report of 20 classes with long names, a leak, and rejected images."""
    root = tmp_path_factory.mktemp("page")
    source = root / "photos"
    for number in range(60):
        folder = (
            source
            / ("train", "val")[number % 2]
            / (f"class{number % 20}" + "W" * 100 * (number % 3))
        )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03d}-{'m' * 80}.jpg").write_bytes(encode(photo(number % 50, 120, 90)))
    (folder / "cut.jpg").write_bytes(encode(photo(5))[:900])
    assert (
        dataprep("convert", "--src", source, "--out", root / "out", "--max-rejected", 1).returncode
        == 0
    )
    done = dataprep("report", root / "out", "--out", root / "report.html", "--src", source)
    assert done.returncode == 0, done.stderr
    return root / "report.html"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_no_complaint_and_no_horizontal_scrolling(browser, page, width, dark):
    browser.open(page, width, dark=dark)
    assert browser.complaints() == []
    assert all(url.startswith(("file://", "data:")) for url in browser.requests())
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    # Everything open, as after a search.
    browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("width", [390, 1180])
def test_long_numbers_stay_within_their_boxes(browser, page, width):
    browser.open(page, width)
    browser.evaluate(
        "document.querySelectorAll('.stats dd').forEach(each => each.textContent = '40,320 x"
        " 30,240')"
    )
    overflows = (
        "[...document.querySelectorAll('.stats div')].filter(each => each.scrollWidth >"
        " each.clientWidth).length"
    )
    assert browser.evaluate(overflows) == 0
    assert browser.evaluate("document.documentElement.scrollWidth") == width


def test_the_policy_is_in_force(browser, page, tmp_path):
    """Otherwise the other tests could not see a violation."""
    changed = tmp_path / "changed.html"
    text = page.read_text("utf-8").replace(
        "</main>", "<img src='http://127.0.0.1:9/x.png'><script>1</script></main>"
    )
    changed.write_text(text, "utf-8")
    browser.open(changed, 1400)
    assert sum("Content Security Policy" in complaint for complaint in browser.complaints()) == 2


def test_every_picture_is_drawn(browser, page):
    """Each thumbnail has an image behind it, of the size of its sprite."""
    browser.open(page, 1400)
    drawn = browser.evaluate(
        "[...document.querySelectorAll('.thumb use')].map(use =>"
        " document.querySelector(use.getAttribute('href'))).every(image => image &&"
        " image.href.baseVal.startsWith('data:image/jpeg'))"
    )
    assert drawn
    assert browser.evaluate("document.querySelectorAll('.thumb').length") > 60
    widths = browser.evaluate(
        "Promise.all([...document.querySelectorAll('image')].map(each => { const i = new Image();"
        " i.src = each.href.baseVal; return i.decode().then(() => i.naturalWidth =="
        " each.getAttribute('width')) })).then(all => all.every(Boolean))",
        wait=True,
    )
    assert widths


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_has_enough_contrast(browser, page, dark):
    """Every text has at least the contrast of WCAG AA, 4.5 to 1, with the background behind it."""
    browser.open(page, 1400, dark=dark)
    found = browser.evaluate(CONTRAST)
    assert len(found["checked"]) > 5
    assert found["low"] == []


CONTRAST = """(() => {
  const parse = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length == 3 ? [...n, 1] : n };
  const light = color => color.slice(0, 3).map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = node => { for (; node; node = node.parentElement) {
    const color = parse(getComputedStyle(node).backgroundColor); if (color[3] == 1) return color }
    return [255, 255, 255, 1] };
  const low = [], checked = new Set();
  for (const node of document.querySelectorAll('body *')) {
    const isText = child => child.nodeType == 3 && child.data.trim();
    if (node.tagName == 'title' || ![...node.childNodes].some(isText)) continue;
    const style = getComputedStyle(node), svg = node instanceof SVGElement;
    const a = light(parse(svg ? style.fill : style.color)), b = light(behind(node));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    checked.add(`${style.color} ${b}`);
    if (ratio < 4.5) low.push([node.tagName, node.textContent.slice(0, 30), ratio]);
  }
  return {low, checked: [...checked]};
})()"""


def test_a_link_to_a_class_opens_its_sheet(browser, page):
    browser.open(page, 1400)
    assert browser.evaluate("document.querySelectorAll('details.sheet[open]').length") == 0
    browser.evaluate("document.querySelector('#classes a').click()")
    assert browser.evaluate("document.querySelectorAll('details.sheet[open]').length") == 1


def test_the_keyboard_reaches_every_link_and_sheet(browser, page):
    browser.open(page, 1400)
    stops = (
        "[...document.querySelectorAll('a[href], summary, .wide')].filter(each =>"
        " each.checkVisibility())"
    )
    total = browser.evaluate(f"{stops}.length")
    reached = set()
    for _ in range(total + 5):
        for kind in ("keyDown", "keyUp"):
            browser.call(
                "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
            )
        reached.add(browser.evaluate(f"{stops}.indexOf(document.activeElement)"))
    assert reached - {-1} == set(range(total))


def test_printing_opens_the_contact_sheets(browser, page, tmp_path):
    browser.open(page, 800)
    is_shown = "document.querySelector('details.sheet .tiles').checkVisibility()"
    assert not browser.evaluate(is_shown)
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate(is_shown)
    browser.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes()[:5] == b"%PDF-"
    browser.call("Emulation.setEmulatedMedia", media="")
