"""Exports a run's policy to files that work without this package: for NumPy alone, for JAX, and for ONNX.

- `export`: traces the policy of a run and writes the folder.
- `program`: converts a traced function to a flat list of simple operations, with its parameters as constants.
- `policy`: interprets that list in NumPy. An export contains a copy of this file, beside policy.npz and policy.json.
- `onnx`: converts the list to an ONNX graph.
"""
