"""The panel Induction: loss on repeated text, prefix matching, and the effect of a head in the text."""
