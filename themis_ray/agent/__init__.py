"""The AGENT: what an app tells the ARBITER, and how it divides what it gets among its trials."""
