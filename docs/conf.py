"""Sphinx configuration of the documentation site."""

import sys
from pathlib import Path

from sphinx.pycode import ModuleAnalyzer

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

project = "dataprep & loaders"
html_title = project
html_theme = "furo"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
html_show_sphinx = False
copybutton_prompt_text = "$ "
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autoclass_content = "class"
# The signature of `loaders.build` is that of the function. Its overloads are for type checkers.
_build = ModuleAnalyzer.for_module("loaders.build")
_build.analyze()
_build.overloads.clear()
# Single backquotes in docstrings are Python names.
default_role = "code"
napoleon_use_rtype = False
