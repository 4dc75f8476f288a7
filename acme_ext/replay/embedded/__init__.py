"""Tables in NumPy arrays of this process, which need no server; a seed determines what is drawn from them."""
