"""Kernels in C, where there is a compiler; torch's kernels give the same bits where there is none."""
