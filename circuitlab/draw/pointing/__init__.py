"""Pointer and keyboard: gestures on marks, the order of Tab, the readout beside the pointer."""
