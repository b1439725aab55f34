"""Sphinx: `sphinx-build -W docs docs/_build/html` at the root runs every tutorial."""

from pathlib import Path

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
smartquotes = False  # options begin with two dashes
html_theme = "furo"
html_title = "relunorm"
html_static_path = ["_static"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

suppress_warnings = ["config.cache"]  # the scraper of figures is a function

autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = True


def _figures(block, block_vars, gallery_conf):
    """Pictures that results return: figures without a window, so pyplot does not list them."""
    from matplotlib.figure import Figure
    from sphinx_gallery.scrapers import figure_rst

    paths = []
    for value in list(block_vars["example_globals"].values()):
        if isinstance(value, Figure) and not (value.canvas.manager or hasattr(value, "saved")):
            paths.append(next(block_vars["image_path_iterator"]))
            value.savefig(paths[-1], dpi=110, bbox_inches="tight")
            value.saved = True
    return figure_rst(paths, gallery_conf["src_dir"])


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "ignore_pattern": r"notebooks",
    "image_scrapers": ("matplotlib", _figures),
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


def _write_commands(app):
    """The page of all commands, from the commands themselves."""
    import typer

    from relunorm.cli import app as program
    from relunorm.cli.examples import EXAMPLES

    lines = ["# Commands", "", "Written from `relunorm COMMAND --help`.", ""]

    def describe(group, before):
        for name, command in sorted(group.commands.items()):
            if hasattr(command, "commands"):
                describe(command, f"{before}{name} ")
                continue
            lines.extend([f"## {before}{name}", "", *_paragraphs(command.help or ""), ""])
            lines.extend(["```text", *EXAMPLES[before + name], "```", "", "| | |", "| --- | --- |"])
            for param in command.params:
                if param.opts[0].startswith("-"):
                    spelled = ", ".join(f"`{option}`" for option in param.opts)
                else:
                    spelled = f"`{(param.metavar or param.name).upper()}`"
                text = " ".join((getattr(param, "help", "") or "").split()).replace("|", r"\|")
                lines.append(f"| {spelled} | {text} |")
            lines.append("")

    describe(typer.main.get_command(program), "")
    path = Path(app.srcdir) / "commands.md"
    text = "\n".join(lines)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _paragraphs(text):
    return [" ".join(part.split()) + "\n" for part in text.split("\n\n")]


def setup(app):
    app.connect("builder-inited", _write_commands)
    app.connect("autodoc-process-docstring", _plain_bars, priority=900)
