"""What changes when something is taken out, put in, or kept alone."""
