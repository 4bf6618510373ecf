"""The panel of evidence for induction heads as a mechanism of in-context learning."""
