"""Text in LaTeX: it prints what it is, opens nothing, and compiles where there is a TeX."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuitlab.report.latex import comment, escaped
from tests.patience import SECONDS

SPECIAL = "\\{}$&#%_^~<>|\"`'-,?![]"
TEXTS = (
    SPECIAL,
    SPECIAL * 2,
    "100% of a_1 & b^2 ~ {x} #3 $y$ \\z",
    "·was → é ü ß ł Å ñ ç",
    "−0.5 × 10⁻³ ≤ α₁",
    "你好 \U0001f600 \u202e",
    "a\n\n\\par\tb",
)
# what is left once every construct that `escaped` may use is taken away
ALLOWED = re.compile(
    r"\\(?:[{}$&#%_]|[`'^~=.\"](?:\{\\?[A-Za-z](?:\{\})?\}|\{\})|(?:text(?:backslash|asciicircum|asciitilde|less|greater|bar"
    r"|visiblespace)|ldots|ss|ae|AE|oe|OE|o|O|l|L|i|S|P|copyright|dag|ddag|pounds)\{\}|[uHvcr]\{\\?[A-Za-z](?:\{\})?\}"
    r"|texttt\{\\char34\}|ifdefined\\Umathchar .\\else\\texttt\{U\+[0-9A-F]{4,6}\}\\fi\{\})"
    r"|\$(?:\\[a-zA-Z]+|\\\||-|\{\}'|\{\}[_^]\{(?:[0-9+-]|\\circ)\})\$|\{[\[\]]\}|\{\}",
    re.DOTALL,
)


def strict(latex: str) -> str:
    """The characters of escaped text that TeX prints as they are. Fails where anything else is left."""
    left = ALLOWED.sub("", latex)
    assert not set(left) & set('\\{}$&#%_^~<>|"[]'), (latex, left)
    assert left.isascii() and left.isprintable(), (latex, left)
    return left


@pytest.mark.parametrize("text", TEXTS)
def test_nothing_of_a_text_does_anything_in_latex(text):
    strict(escaped(text))


@given(st.text())
def test_no_text_at_all_does_anything_in_latex(text):
    strict(escaped(text))
    assert "\n" not in escaped(text) and "\n" not in comment(text) and comment(text).startswith("%")


def test_every_character_is_printed_in_its_order():
    plain = "".join(chr(c) for c in range(33, 127) if chr(c) not in SPECIAL)
    assert strict(escaped(plain)) == plain
    assert escaped("---") == "-{}-{}-"  # three hyphens are no dash
    assert escaped("$100%") == r"\$100\%"
    assert escaped("é [1]") == r"\'{e} {[}1{]}"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs a TeX")
def test_it_compiles(tmp_path):
    whole = "".join(map(chr, (*range(1, 0x250), *range(0x370, 0x3FF), *range(0x2000, 0x2300)))) + "你好\U0001f600"
    words = [" ".join(whole[i : i + 200]) for i in range(0, len(whole), 200)]
    captions = "\n".join(
        f"{comment(w)}\n" rf"\begin{{figure}}\caption[{escaped(w)}]{{{escaped(w)}}}\end{{figure}}\clearpage" for w in words
    )
    lines = (r"\documentclass{article}\begin{document}\listoffigures", captions, r"\end{document}")
    (tmp_path / "a.tex").write_text("\n".join(lines), encoding="utf-8")
    for _ in range(2):
        run = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "a.tex"]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
