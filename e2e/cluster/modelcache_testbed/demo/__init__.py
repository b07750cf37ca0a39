"""`make demo`: the main job, shown step by step on one of the test bed's clusters."""
