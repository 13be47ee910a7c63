"""Tables by name: a session resolves them in its catalog."""
