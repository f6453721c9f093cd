"""Sphinx: what the site is made of and how it looks. ``make docs`` builds it."""

import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "site"))

from api_pages import write_api_pages
from graphmend import __version__
from sample_report import write_report

write_api_pages(HERE / "api")
EXAMPLES = HERE.parent / "build" / "docs" / "examples"  # they write files where they lie
shutil.copytree(HERE.parent / "examples", EXAMPLES, dirs_exist_ok=True)
if not (HERE / "extra" / "report.html").exists():
    write_report(HERE / "extra" / "report.html")

project = "GraphMend"
author = "The GraphMend authors"
copyright = author
version = release = __version__.split("+")[0]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
    "mathml",
]
exclude_patterns = ["site", "gallery/*.ipynb", "gallery/*.py"]
html_math_renderer = "mathml"
python_use_unqualified_type_names = True

# Markdown: links to titles, as they are written on code hosting sites, and formulas between dollars
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

# Docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
maximum_signature_line_length = 88

sphinx_gallery_conf = {
    "examples_dirs": str(EXAMPLES),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "gallery_order.Order",
    "abort_on_example_error": True,
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("graphmend",),
    "reference_url": {"graphmend": None},
    "image_scrapers": ("figures.figures",),
    "capture_repr": ("_repr_html_", "__repr__"),
    "show_memory": False,
    "remove_config_comments": True,
    "write_computation_times": False,
    "download_all_examples": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "GraphMend"
html_static_path = ["site/static"]
html_extra_path = ["extra"]
html_css_files = ["graphmend.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # it would be fetched, which browsers forbid to pages on disk
html_context = {"default_mode": "auto"}
html_sidebars = {"index": []}
html_theme_options = {
    "logo": {"text": "GraphMend"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "show_prev_next": True,
}
# Files of the repository that pages name and that are pages of the site as well
REPOSITORY_PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}


def as_pages_of_the_site(app, name, source):
    """Changelog and contributing are those of the repository; links to such files lead to pages of the site."""
    for file, page in REPOSITORY_PAGES.items():
        if page == f"{name}.md" and page != "index.md":
            app.env.note_dependency(HERE.parent / file)
            source[0] = (HERE.parent / file).read_text(encoding="utf-8").replace("](docs/", "](")
    if name.startswith("results/tables/"):  # written to stand within another page
        source[0] = re.sub("^####? ", "## ", source[0], flags=re.MULTILINE).replace("## ", "# ", 1)
    for file, page in REPOSITORY_PAGES.items():
        source[0] = source[0].replace(f"](../{file}", f"]({page}").replace(f"]({file}", f"]({page}")


def setup(app):
    """Called by Sphinx."""
    app.connect("source-read", as_pages_of_the_site)
