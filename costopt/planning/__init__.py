"""From a job, a policy and prices to a plan, a frontier or a comparison of scenarios."""
