"""What can be drawn, as data (`marks`), and one file per panel: State -> Requests, Answers -> Figure. No Qt."""
