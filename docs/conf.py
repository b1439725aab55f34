"""Sphinx: `sphinx-build -W docs docs/_build/html` at the root runs every gallery script."""

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
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "gallery/*.md5", "gallery/*.zip"]
html_theme = "alabaster"
html_theme_options = {
    "description": relunorm.__doc__.splitlines()[0] if relunorm.__doc__ else "",
    "page_width": "1080px",
    "fixed_sidebar": False,
}
html_show_sourcelink = True
myst_heading_anchors = 3

autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "min_reported_time": 1_000_000,
    "write_computation_times": False,  # that page would fetch scripts from elsewhere
}


def _plain_bars(app, what, name, obj, options, lines):
    """Docstrings write norms as |w|, which reStructuredText would take for a substitution."""
    lines[:] = [
        line if line.lstrip().startswith(">>>") else line.replace("|", r"\|") for line in lines
    ]


def setup(app):
    app.connect("autodoc-process-docstring", _plain_bars, priority=900)
