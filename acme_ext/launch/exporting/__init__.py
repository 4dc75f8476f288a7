"""A run's policy in files that need nothing of this package: for NumPy alone, for JAX, and for ONNX.

- `export`: traces the policy of a run and writes the folder.
- `program`: a traced function as a flat list of simple operations, its parameters constants.
- `policy`: the interpreter of that list in NumPy. The file itself is copied beside policy.npz and policy.json.
- `onnx`: the same list as an ONNX graph.
"""
