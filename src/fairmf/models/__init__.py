"""What is minimised, and by which algorithm: FairALS, IALS, FiADMM, Popularity."""
