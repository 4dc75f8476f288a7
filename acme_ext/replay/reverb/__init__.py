"""Tables of a Reverb server. Only this package imports Reverb and TensorFlow."""
