"""The hand: gestures on marks, the order of Tab, the value beside the pointer."""
