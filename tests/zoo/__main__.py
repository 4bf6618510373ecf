"""Write docs/zoo.md anew."""

from tests.zoo.page import PAGE, text

PAGE.write_text(text(), "utf-8")
