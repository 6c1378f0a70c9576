"""What the node's own instruments report of its energy and of the load of its GPUs."""
