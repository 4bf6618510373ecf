"""Bytes on a disk to named tensors, without trusting a byte: whole files, strict JSON, safetensors, archives and pickles."""
