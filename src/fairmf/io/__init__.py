"""Write and read files that last: atomic writes, a checked container of arrays, strict JSON. No pickle."""
