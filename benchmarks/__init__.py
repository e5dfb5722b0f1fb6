"""Benchmarks: each is a module with `run(short) -> Result`; `python -m benchmarks` runs them and writes RESULTS.md."""
