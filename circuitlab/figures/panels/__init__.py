"""One file a panel, or one package where it has several pages."""
