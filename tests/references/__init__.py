"""Plain NumPy references of the kernels, written to be read, not to be fast.

The reference of a point operation has the operation's name in kernels/ops.def, in lower case.
"""
