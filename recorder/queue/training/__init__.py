"""What a training step takes and costs: steps, running baselines, budgets, cost estimates."""
