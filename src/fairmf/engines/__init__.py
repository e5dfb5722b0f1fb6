"""3c. Engines: on how many machines a fit runs."""
