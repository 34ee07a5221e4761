"""muddle inside programs of others: a module per partner, whose package it needs."""
