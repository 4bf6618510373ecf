"""What adds up to a prediction or a score: parts of the stream, paths, terms, each with its remainder."""
