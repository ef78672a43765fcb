"""Making synthetic rows meet the rules that a dictionary declares between columns."""
