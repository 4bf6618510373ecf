"""Where docks stand: in an arrangement, one alone, as remembered."""
