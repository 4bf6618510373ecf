"""Import by a map: a checkpoint of no known family, made a model of ours by a TOML file of tensor names."""
