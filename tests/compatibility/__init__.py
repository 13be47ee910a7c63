"""Tables and indexes as each released version wrote them; later versions must read them."""
