"""Pages as HTML: everything that is not ours is escaped, and nothing is loaded but our style."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import ChoiceLoader, Environment, PackageLoader

import costopt
from costopt.daemon.pages.frame import PageLayout
from costopt.formatting import second_text
from costopt.render.html import template_environment
from costopt.render.page import Page

STYLE_PATH = "/pages.css"
ICON_PATH = "/pages.svg"


def render(page: Page, frame: PageLayout) -> str:
    """One HTML document."""
    return _environment().get_template("place.html.j2").render(page=page, frame=frame)


def render_notice(title: str, message: str, hint: str = "") -> str:
    """A document that says why there is no page."""
    template = _environment().get_template("notice.html.j2")
    return template.render(title=title, message=message, hint=hint)


def render_login(then: str, refused: str = "") -> str:
    """A document that asks for a token; ``then`` is the path that is shown afterwards."""
    return _environment().get_template("login.html.j2").render(then=then, refused=refused)


@cache
def style() -> str:
    """The style of the reports, whose drawings the pages show, and what the pages add to it."""
    return _text("costopt.render", "page.css") + _text("costopt.daemon.pages", "pages.css")


@cache
def icon() -> str:
    """The pages' mark, as SVG."""
    return _text("costopt.daemon.pages", "icon.svg")


def _text(package: str, name: str) -> str:
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = template_environment(
        ChoiceLoader([PackageLoader("costopt.daemon.pages"), PackageLoader("costopt.render")])
    )
    environment.globals.update(
        version=costopt.__version__, style_path=STYLE_PATH, icon_path=ICON_PATH
    )
    environment.filters["instant"] = second_text
    return environment
