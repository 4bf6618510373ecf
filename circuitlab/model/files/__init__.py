"""From bytes on disk to named tensors, trusting no byte: whole files, strict JSON, safetensors, archives and pickles."""
