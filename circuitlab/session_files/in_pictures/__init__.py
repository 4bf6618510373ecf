"""The view of a picture as text inside its file: written and read in PNG, SVG and PDF."""
