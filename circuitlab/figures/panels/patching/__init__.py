"""The panel Patching: activations and paths patched from the pinned prompt."""
