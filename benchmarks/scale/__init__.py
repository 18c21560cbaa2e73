"""What a job of another size would need, computed from what is measured on this machine."""
