from hypothesis import settings

# The same examples in every run, so that a failure is the change's and not the day's.
settings.register_profile("ci", derandomize=True, deadline=None)
# For searching: HYPOTHESIS_PROFILE=search.
settings.register_profile("search", max_examples=2000, deadline=None)
settings.load_profile("ci")
