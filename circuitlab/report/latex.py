"""Text of models and tokenizers in LaTeX: whatever its characters, it is printed, and does nothing.

For pdfLaTeX with its UTF-8 input, XeLaTeX and LuaLaTeX alike, in any encoding of fonts. A character that pdfLaTeX cannot be
expected to have stands as itself for the two others, and as its code point for pdfLaTeX.
"""

from __future__ import annotations

import unicodedata

_ASCII = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",  # these are other characters in LaTeX's first encoding of fonts
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\texttt{\char34}",
    "`": r"\`{}",
    "[": "{[}",
    "]": "{]}",
}
_SYMBOLS = r"""
· \cdot ⋅ \cdot × \times ÷ \div ± \pm − - ≤ \leq ≥ \geq ≈ \approx ≠ \neq ∞ \infty √ \surd ∑ \sum ∂ \partial ∇ \nabla ∈ \in
∘ \circ → \rightarrow ← \leftarrow ↔ \leftrightarrow ↑ \uparrow ↓ \downarrow ⋯ \cdots ↵ \hookleftarrow ‖ \| ⟨ \langle ⟩ \rangle
⊤ \top ⊥ \perp ∝ \propto ′ {}' ° {}^{\circ} ¬ \neg ∩ \cap ∪ \cup µ \mu α \alpha β \beta γ \gamma δ \delta ε \varepsilon ζ \zeta
η \eta θ \theta ι \iota κ \kappa λ \lambda μ \mu ν \nu ξ \xi π \pi ρ \rho σ \sigma τ \tau υ \upsilon φ \varphi χ \chi ψ \psi
ω \omega Γ \Gamma Δ \Delta Θ \Theta Λ \Lambda Ξ \Xi Π \Pi Σ \Sigma Υ \Upsilon Φ \Phi Ψ \Psi Ω \Omega
⁰ {}^{0} ¹ {}^{1} ² {}^{2} ³ {}^{3} ⁴ {}^{4} ⁵ {}^{5} ⁶ {}^{6} ⁷ {}^{7} ⁸ {}^{8} ⁹ {}^{9} ⁺ {}^{+} ⁻ {}^{-}
₀ {}_{0} ₁ {}_{1} ₂ {}_{2} ₃ {}_{3} ₄ {}_{4} ₅ {}_{5} ₆ {}_{6} ₇ {}_{7} ₈ {}_{8} ₉ {}_{9}
""".split()
_MATHS = dict(zip(_SYMBOLS[::2], _SYMBOLS[1::2], strict=True))
_WORDS = {
    "“": "``", "”": "''", "‘": "`", "’": "'", "–": "--", "—": "---", "…": r"\ldots{}",
    "␣": r"\textvisiblespace{}", "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}", "Ø": r"\O{}", "œ": r"\oe{}",
    "Œ": r"\OE{}", "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}", "§": r"\S{}", "¶": r"\P{}", "©": r"\copyright{}",
    "†": r"\dag{}", "‡": r"\ddag{}", "¿": "?`", "¡": "!`", "£": r"\pounds{}",
}  # fmt: skip
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".", "\u0308": '"',
    "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
}  # fmt: skip
_JOINED = frozenset("“”‘’–—-,'")  # two of them in a row would be printed as another one


def escaped(text: str) -> str:
    """`text` as LaTeX that prints it, on one line, in text or in a moving argument such as that of `\\caption`.

    Runs of white space are one space; a control character is U+FFFD.
    """
    words = " ".join(text.split())
    apart = ("{}" if one in _JOINED and before in _JOINED else "" for before, one in zip(" " + words, words, strict=False))
    return "".join(f"{gap}{_escaped(character)}" for gap, character in zip(apart, words, strict=True))


def comment(text: str) -> str:
    """`text` as one line of a comment, in ASCII but for letters that are printed."""
    return "% " + "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


def _escaped(character: str) -> str:
    if character in _ASCII:
        return _ASCII[character]
    if " " <= character <= "~":
        return character
    if character in _MATHS:
        return f"${_MATHS[character]}$"
    if character in _WORDS:
        return _WORDS[character]
    parts = unicodedata.normalize("NFD", character)
    if len(parts) == 2 and parts[0].isascii() and parts[1] in _ACCENTS:
        letter = rf"\{parts[0]}{{}}" if parts[0] in "ij" else parts[0]
        return rf"\{_ACCENTS[parts[1]]}{{{letter}}}"
    shown = character if character.isprintable() else "\ufffd"
    return rf"\ifdefined\Umathchar {shown}\else\texttt{{U+{ord(character):04X}}}\fi{{}}"
