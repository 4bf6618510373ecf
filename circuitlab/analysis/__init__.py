"""The mathematics, one file per subject: `f(inputs, params, ctx) -> frozen Result of numpy arrays`. No Qt, no files."""
