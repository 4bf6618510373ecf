"""A picture of what is shown, on its way to a file or the clipboard: its paper, its preview, its words."""
