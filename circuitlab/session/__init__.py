"""Everything a person has chosen: State, History, and their form on disk."""
