"""The look of a report on the screen and printed by a browser: one style sheet, no font and no picture from elsewhere."""

from __future__ import annotations

# ruff: noqa: E501
# Text in a serif of the reader's own, 68 characters a line; data, captions and headings in the sans that figures are set in.
STYLE = """
:root { color-scheme: light dark;
  --ground: #ffffff; --text: #1d1d21; --muted: #5a5a63; --line: #dedee1; --soft: #f5f5f6; --accent: #ad1457;
  --serif: Charter, "Bitstream Charter", "Iowan Old Style", "Source Serif 4", "Palatino Linotype", Palatino, Georgia, serif;
  --sans: Inter, "Helvetica Neue", "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, sans-serif;
  --mono: "Noto Sans Mono", ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
@media (prefers-color-scheme: dark) { :root {
  --ground: #1b1b1e; --text: #e8e8ec; --muted: #a9a9b2; --line: #3a3a41; --soft: #26262a; --accent: #ff7aa8; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--ground); color: var(--text); font: 1.0625rem/1.55 var(--serif);
  font-kerning: normal; text-rendering: optimizeLegibility; }
.sheet { max-width: 58rem; margin: 0 auto; padding: 4rem 1.5rem 6rem; }
.sheet > header, .sheet > footer, .prose, h2, .remark, .failed { max-width: 40rem; }
h1, h2, h3, h4, h5, h6 { font-family: var(--sans); font-weight: 600; line-height: 1.2; text-wrap: balance; overflow-wrap: break-word; }
h1 { font-size: 2.25rem; letter-spacing: -0.015em; margin: 0.25rem 0 0.75rem; }
h2 { font-size: 1.5rem; letter-spacing: -0.01em; margin: 0 0 0.75rem; }
h3 { font-size: 1.125rem; margin: 2rem 0 0.5rem; }
h4, h5, h6 { font-size: 1rem; margin: 1.5rem 0 0.5rem; }
h2 .number { color: var(--muted); font-weight: 400; margin-right: 0.6em; font-variant-numeric: tabular-nums; }
.kicker, .about { font: 0.875rem/1.5 var(--sans); color: var(--muted); margin: 0; }
section { margin-top: 4rem; }
p, ul, ol, pre, blockquote, .prose table { margin: 0 0 1rem; }
p { text-wrap: pretty; overflow-wrap: break-word; hanging-punctuation: first; }
li > ul, li > ol { margin: 0.25rem 0; }
li + li { margin-top: 0.25rem; }
ul, ol { padding-left: 1.5rem; }
blockquote { padding-left: 1rem; border-left: 3px solid var(--line); color: var(--muted); }
hr { border: 0; border-top: 1px solid var(--line); margin: 2rem 0; }
a { color: var(--accent); text-decoration-thickness: 1px; text-underline-offset: 0.15em; }
code, pre { font-family: var(--mono); font-size: 0.85em; font-variant-ligatures: none; }
:not(pre) > code { background: var(--soft); border-radius: 3px; padding: 0.1em 0.3em; }
pre { background: var(--soft); border-radius: 4px; padding: 0.75rem 1rem; overflow-x: auto; line-height: 1.45; }
.equation { padding-left: 1.5rem; }
.equation > code { background: none; padding: 0; }
.value { font-weight: 600; font-variant-numeric: lining-nums; }
nav ol { list-style: none; margin: 1.5rem 0 0; padding: 0.75rem 0 0; border-top: 1px solid var(--line);
  font: 0.9375rem/1.5 var(--sans); counter-reset: step; }
nav li { counter-increment: step; display: flex; gap: 0.75rem; }
nav li::before { content: counter(step); color: var(--muted); min-width: 1.25rem; text-align: right; font-variant-numeric: tabular-nums; }
nav a { color: inherit; text-decoration: none; }
nav a:hover, nav a:focus-visible { text-decoration: underline; }
nav .last::before { content: ""; }
figure { margin: 2rem 0 2.5rem; }
.plate { background: #fff; border-radius: 4px; overflow-x: auto; }
@media (prefers-color-scheme: dark) { .plate { padding: 0.75rem; } }
.plate svg { display: block; width: 100%; height: auto; min-width: 30rem; }
figcaption { max-width: 48rem; margin-top: 0.75rem; font: 0.8125rem/1.5 var(--sans); color: var(--muted); overflow-wrap: break-word; }
figcaption .title { color: var(--text); }
figcaption b { font-weight: 600; color: var(--text); }
.conventions { display: block; }
details { margin-top: 0.5rem; font: 0.8125rem/1.5 var(--sans); }
summary { cursor: pointer; color: var(--muted); width: fit-content; }
summary:hover, summary:focus-visible { color: var(--text); }
details h4 { font-size: 0.8125rem; margin: 1rem 0 0.25rem; text-wrap: wrap; }
details h4 small { font-size: inherit; font-weight: 400; color: var(--muted); }
.rows { max-height: 22rem; overflow: auto; border-top: 1.5px solid var(--text); border-bottom: 1.5px solid var(--text);
  width: fit-content; max-width: 100%; }
table { border-collapse: collapse; font: 0.8125rem/1.45 var(--sans); font-variant-numeric: tabular-nums lining-nums; }
.prose table { border-top: 1.5px solid var(--text); border-bottom: 1.5px solid var(--text); }
th { font-weight: 600; text-align: left; vertical-align: bottom; border-bottom: 1px solid var(--text); }
.rows th { position: sticky; top: 0; background: var(--ground); box-shadow: inset 0 -1px 0 var(--text); border: 0; white-space: nowrap; }
th, td { padding: 0.2rem 1.25rem 0.2rem 0; }
th:last-child, td:last-child { padding-right: 0.25rem; }
td { vertical-align: top; }
.rows td { white-space: pre; }
td.n, th.n { text-align: right; }
.failed { border-left: 3px solid var(--accent); padding-left: 1rem; margin: 1.5rem 0; }
.failed p { margin: 0 0 0.25rem; }
.failed .do { font: 0.875rem/1.5 var(--sans); color: var(--muted); }
.remark { font: 0.875rem/1.5 var(--sans); color: var(--muted); }
.aside { border-left: 3px solid var(--line); padding-left: 1rem; font-style: italic; }
.aside::before { content: "Aside"; display: block; font: 600 0.75rem/1.5 var(--sans); letter-spacing: 0.06em; text-transform: uppercase;
  color: var(--muted); }
.facts { border-top: 1px solid var(--line); padding-top: 2rem; }
.facts h3:first-of-type { margin-top: 1rem; }
.facts p, .facts dd, .facts li { font: 0.875rem/1.5 var(--sans); white-space: pre-wrap; }
.facts dl { margin: 0 0 1.25rem; }
.facts dt { font: 600 0.875rem/1.5 var(--sans); }
.facts dd { margin: 0; color: var(--muted); overflow-wrap: anywhere; }
.hash { font-family: var(--mono); font-size: 0.75rem; }
@media (max-width: 40rem) { .sheet { padding: 2rem 1rem 4rem; } h1 { font-size: 1.75rem; } h2 { font-size: 1.25rem; } section { margin-top: 3rem; } }
@media print {
  @page { size: A4; margin: 20mm 18mm; }
  :root { --ground: #fff; --text: #000; --muted: #44444c; --line: #bbb; --soft: #f2f2f3; --accent: #000; }
  body { font-size: 10.5pt; } .sheet { max-width: none; padding: 0; }
  h1 { font-size: 20pt; } h2 { font-size: 14pt; } h1, h2, h3, h4 { break-after: avoid; }
  section { margin-top: 10mm; } section > h2 + * { break-before: avoid; } .prose:has(+ .remark), .prose:has(+ figure), .remark { break-after: avoid; }
  figure, .plate, pre, .failed, dl > div { break-inside: avoid; } figcaption { break-before: avoid; }
  .plate { padding: 0; } .plate svg { min-width: 0; max-height: 160mm; }
  details, nav { display: none; } p { orphans: 3; widows: 3; }
  a[href^="http"]::after { content: " (" attr(href) ")"; font-size: 0.85em; overflow-wrap: anywhere; }
}
"""
