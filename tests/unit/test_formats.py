"""The formats of files: whoever writes them knows exactly those that are declared."""

from __future__ import annotations

from circuitlab.cli.parser import _parser
from circuitlab.disk.formats import DATA, PICTURES, dialog_filter, listed, suffixes
from circuitlab.draw.export import pictures
from circuitlab.engine import export_data


def test_each_declared_format_is_written_and_no_other() -> None:
    assert tuple(export_data._WRITERS) == tuple(one.name for one in DATA)
    assert set(pictures._WRITERS) == set(suffixes(PICTURES))


def test_the_command_line_offers_each_format_of_numbers() -> None:
    args = _parser().parse_args(["compute", "bigram", "a-model", *(f"--{one.name}=file" for one in DATA)])
    assert all(getattr(args, one.name) == "file" for one in DATA)


def test_a_dialog_offers_each_format_by_its_suffix() -> None:
    assert dialog_filter(DATA) == "Table (*.csv);;Arrays (*.npz);;JSON (*.json)"
    assert dialog_filter(DATA, zipped=True) == "Tables (*.csv.zip);;Arrays (*.npz.zip);;JSON (*.json.zip)"
    assert listed(PICTURES, " or ") == "PDF, SVG or PNG"
