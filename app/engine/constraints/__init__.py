"""Making synthetic rows keep what a dictionary declares between columns."""
