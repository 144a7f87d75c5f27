"""What passes share that store weights in fewer bits: finding, numerics, emitting."""
