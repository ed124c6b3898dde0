"""What a training step uses and costs: steps, running baselines, budgets, cost estimates. Refuses: training."""
