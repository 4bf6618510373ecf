"""Import by a map: a checkpoint of an unknown family, converted by a TOML file of tensor names."""
