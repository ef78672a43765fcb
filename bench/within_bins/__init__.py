"""What counting sub-bins of private bins gains."""
