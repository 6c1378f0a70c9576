"""What the node's own instruments say of its energy and of how busy its GPUs are."""
