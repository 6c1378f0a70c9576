"""What controller, agent and trainer exchange; standard library only."""
