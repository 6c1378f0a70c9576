"""What controller, agents and trainers exchange; standard library only."""
