"""What counting pieces of bought bins is worth."""
