"""Sessions in the window: new, open, save, and whether anything is unsaved. Files are read and written on a worker thread."""
