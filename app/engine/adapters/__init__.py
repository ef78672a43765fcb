"""Other projects' synthesizers, each library in a virtualenv and a process of its own."""
