"""One fit as a page for people, and what is odd about a table: leaks, repeated rows, drift."""
