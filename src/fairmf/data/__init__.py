"""Hold interactions: read them, encode their ids, build sparse rows, split them."""
