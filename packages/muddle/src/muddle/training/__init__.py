"""How nets are fitted: settings, the loop, and when to stop."""
