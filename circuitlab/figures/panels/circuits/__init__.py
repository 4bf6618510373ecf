"""The panel Circuits: what a head does with a token, read from the weights, and where text makes use of it."""
