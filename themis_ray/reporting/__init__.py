"""What people see of the cluster: tables, JSON, MLflow."""
