"""Known models that a person can get by one name: what each is and shows, its licence and size, where it comes from and lies."""
