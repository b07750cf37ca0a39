"""What in the Helm chart is made from something else."""
