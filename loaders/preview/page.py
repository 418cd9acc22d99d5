"""A preview as HTML: a fragment for a notebook, or a whole page.

All text passes through `Markup.format`.
"""

from __future__ import annotations

import io

import numpy as np
from markupsafe import Markup
from PIL import Image

from loaders.preview.preview import Group, Item, Pixels, Preview
from manifests.process.pages import jpeg_uri, make_page, page_mark

#: By this element, the command recognizes a file that it may replace.
GENERATOR = page_mark("loaders preview")

_STYLE = Markup("""<style>
.loaders-preview { font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere; }
.loaders-preview h1 { font-size: 1.3rem; margin: 0 0 6px; }
.loaders-preview h2 { font-size: 1.05rem; margin: 18px 0 6px; }
.loaders-preview p { margin: 0 0 4px; max-width: 110ch; opacity: .8; }
.loaders-preview .item { display: flex; flex-wrap: wrap; gap: 8px; margin: 12px 0; padding-bottom: 10px; }
.loaders-preview .items { display: flex; flex-wrap: wrap; gap: 0 28px; }
.loaders-preview figure { margin: 0; width: 168px; } .loaders-preview figcaption { font-size: 12px; margin-top: 3px; }
.loaders-preview figcaption span { display: block; opacity: .75; }
.loaders-preview img { display: block; width: 168px; height: 168px; object-fit: contain; background: #8882; }
.loaders-preview .original img { outline: 2px solid #2f6fde; }
</style>""")

_FIGURE = Markup(
    "<figure{kind}>{picture}<figcaption><bdi>{title}</bdi>{detail}</figcaption></figure>"
)
_IMAGE = Markup('<img src="{uri}" alt="{alt}" loading="lazy">')


def page(preview: Preview) -> str:
    """Return a whole page. It loads nothing from the network and runs no script."""
    return make_page(GENERATOR, preview.title, fragment(preview))


def fragment(preview: Preview) -> Markup:
    """Return the preview as one element, for a notebook."""
    notes = Markup("").join(Markup("<p>{}</p>\n").format(note) for note in preview.notes)
    groups = Markup("\n").join(map(_group, preview.groups))
    whole = Markup('<div class="loaders-preview">{}\n<h1>{}</h1>\n{}{}\n</div>')
    return whole.format(_STYLE, preview.title, notes, groups)


def _group(group: Group) -> Markup:
    title = Markup("<h2>{}</h2>\n").format(group.title) if group.title else ""
    items = Markup("\n").join(map(_item, group.items))
    return Markup('{}<div class="items">{}</div>').format(title, items)


def _item(item: Item) -> Markup:
    detail = Markup("<span><bdi>{}, {}</bdi></span><span><bdi>{}</bdi></span>").format(
        item.key, item.size, item.source
    )
    figures = [
        _figure(
            item.original,
            f"{item.label}, as stored",
            item.label,
            detail,
            Markup(' class="original"'),
        )
    ]
    for number, draw in enumerate(item.draws, 1):
        alt = f"{item.label}, result {number} {draw.caption}".rstrip()
        figures.append(_figure(draw.pixels, alt, draw.caption, Markup(""), Markup("")))
    return Markup('<div class="item">{}</div>').format(Markup("").join(figures))


def _figure(pixels: Pixels | None, alt: str, title: str, detail: Markup, kind: Markup) -> Markup:
    picture: Markup | str = "cannot be decoded"
    if pixels is not None:
        out = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(pixels)).save(out, "JPEG", quality=90)
        picture = _IMAGE.format(uri=jpeg_uri(out.getvalue()), alt=alt)
    return _FIGURE.format(kind=kind, picture=picture, title=title, detail=detail)
