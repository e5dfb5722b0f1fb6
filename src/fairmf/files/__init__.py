"""1b. Files that last: arrays and JSON in one safetensors file, checked before anything in it is believed.

`container` is the file, `id_arrays` ids in it, `atomic` the way any file is written. What a file is about (a model, a
checkpoint, an index) is known to those who use this. Nothing here unpickles, and nothing in a file names code to run.
"""
