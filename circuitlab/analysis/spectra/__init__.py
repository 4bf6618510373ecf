"""Eigenvalues and singular values of circuits, and what follows from their signs."""
