"""The panel Induction laboratory: the constructed model step by step."""
