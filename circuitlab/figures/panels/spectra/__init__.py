"""The panel Spectra: eigenvalues and singular values of the circuits of heads."""
