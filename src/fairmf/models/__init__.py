"""Define and train the models: FairALS, IALS, FiADMM, Popularity."""
