"""The panel Prompt sets: averages of an analysis over many prompts."""
