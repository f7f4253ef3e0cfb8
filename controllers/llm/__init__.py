"""Language models that steer: backends, prompts, answers, and the agent."""
