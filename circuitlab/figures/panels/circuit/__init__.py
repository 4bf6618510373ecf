"""The panel Keep only this circuit: faithfulness and completeness of heads or edges."""
