"""Sphinx: `sphinx-build -W docs docs/_build/html` at the root."""

import relunorm

project = "relunorm"
author = "The relunorm developers"
copyright = "2026, the relunorm developers"
version = release = relunorm.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
smartquotes = False  # options begin with two dashes
html_theme = "furo"
html_title = "relunorm"
html_static_path = ["_static"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = True


def _plain_bars(app, what, name, obj, options, lines):
    """Docstrings write norms as |w|, which reStructuredText would take for a substitution."""
    lines[:] = [
        line if line.lstrip().startswith(">>>") else line.replace("|", r"\|") for line in lines
    ]


def setup(app):
    app.connect("autodoc-process-docstring", _plain_bars, priority=900)
