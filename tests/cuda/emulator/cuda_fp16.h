// Half precision is in threads.h.
