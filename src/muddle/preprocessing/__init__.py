"""From what the user passes to what the nets take. No torch here."""
